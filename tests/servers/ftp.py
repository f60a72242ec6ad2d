"""An FTP server for tests: ProFTPD, from the distribution, which wants TLS before a password and one TLS session for all."""

import ftplib
import os
import signal
import subprocess
from pathlib import Path

from tests.servers.accounts import unprivileged
from tests.servers.ports import free_port
from tests.servers.process import NotInstalled, Process, program
from tests.servers.server import Server

_MODULES = Path("/usr/lib/proftpd")


class FtpServerProcess(Server):
    """ProFTPD over the folder `files`, for one virtual user."""

    user, password = "archivist", "test password"

    def __init__(self, *, has_tls: bool = True) -> None:
        account = unprivileged()
        super().__init__(account)
        if has_tls and not (_MODULES / "mod_tls.so").exists():
            raise NotInstalled("ProFTPD's TLS", "proftpd-mod-crypto")
        self.port = free_port()
        self.files = self._folder / "files"
        self.files.mkdir()
        self.certificate = self._folder / "certificate.pem"
        uid, gid = (account.uid, account.gid) if account else (os.getuid(), os.getgid())
        self._folder.chmod(0o755)
        os.chown(self.files, uid, gid)
        key = self._folder / "key.pem"
        subprocess.run(
            [
                *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
                *("-keyout", key, "-out", self.certificate, "-days", "2", "-subj", "/CN=127.0.0.1"),
                *("-addext", "subjectAltName=IP:127.0.0.1"),
            ],
            check=True,
            capture_output=True,
        )
        crypted = subprocess.run(
            ["openssl", "passwd", "-6", self.password], check=True, capture_output=True, text=True
        ).stdout.strip()
        users = self._folder / "users"
        users.write_text(f"{self.user}:{crypted}:{uid}:{gid}::{self.files}:/bin/false\n")
        users.chmod(0o600)
        key.chmod(0o600)
        tls = (
            "LoadModule mod_tls.c\nTLSEngine on\nTLSRequired on\n"
            f"TLSECCertificateFile {self.certificate}\nTLSECCertificateKeyFile {key}\n"
        )
        settings = self._folder / "proftpd.conf"
        settings.write_text(
            f"ModulePath {_MODULES}\n{tls if has_tls else ''}"
            f"ServerName test\nServerType standalone\nDefaultAddress 127.0.0.1\nPort {self.port}\nUseIPv6 off\n"
            f"PidFile {self._folder}/pid\nScoreboardFile {self._folder}/scoreboard\nDelayEngine off\n"
            "UseReverseDNS off\nWtmpLog off\nRequireValidShell off\nAuthPAM off\nAuthOrder mod_auth_file.c\n"
            f"AuthUserFile {users}\nDefaultRoot ~\nAllowOverwrite on\nAllowStoreRestart on\nAllowRetrieveRestart on\n"
            "SystemLog none\nTransferLog none\n"
        )
        self._process = Process(
            "proftpd",
            [program("proftpd", Path("/usr/sbin"), packages="proftpd-core"), "-n", "-q", "-c", str(settings)],
            folder=self._folder,
            ready=self._serves,
            stop_signal=signal.SIGTERM,
        )

    def start(self) -> None:
        self._process.start()

    def stop(self) -> None:
        self._process.stop()

    def _serves(self) -> bool:
        try:
            with ftplib.FTP(timeout=5) as ftp:
                ftp.connect("127.0.0.1", self.port)
        except (OSError, EOFError, ftplib.Error):
            return False
        return True
