# SPDX-License-Identifier: GPL-2.0-or-later
"""
A server for SSH on this host, which runs commands and forwards connections to
sockets: asyncssh's own.  Run with a folder, which gets a HOME for clients.
"""

import asyncio
import sys
from pathlib import Path

import asyncssh

CONFIG = '''Host {hosts}
    HostName 127.0.0.1
    Port {port}
    User root
    IdentityFile {folder}/user
    UserKnownHostsFile {folder}/known
'''


class Server(asyncssh.SSHServer):
    def unix_connection_requested(self, dest_path: str) -> bool:
        return True


async def run(process: asyncssh.SSHServerProcess) -> None:
    pipe = asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_shell(
        process.command, stdin=pipe, stdout=pipe, stderr=pipe)
    await process.redirect(child.stdin, child.stdout, child.stderr)
    process.exit(await child.wait())


async def main(folder: Path, hosts: str) -> None:
    host, user = (asyncssh.generate_private_key('ssh-ed25519')
                  for _ in range(2))
    user.write_private_key(str(folder / 'user'))
    (folder / 'user').chmod(0o600)
    user.write_public_key(str(folder / 'authorized'))
    server = await asyncssh.listen(
        '127.0.0.1', 0, server_factory=Server, process_factory=run,
        server_host_keys=[host], authorized_client_keys=str(
            folder / 'authorized'))
    port = server.get_port()
    (folder / 'known').write_text(
        f'[127.0.0.1]:{port} ' + host.export_public_key().decode())
    (folder / '.ssh').mkdir()
    (folder / '.ssh/config').write_text(
        CONFIG.format(hosts=hosts, port=port, folder=folder))
    print('ready', flush=True)
    await server.wait_closed()


if __name__ == '__main__':
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
