"""Certificates of a CA that exists for one test."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Authority:
    """A CA with a certificate and key for 127.0.0.1, all in PEM files in `folder`."""

    def __init__(self, folder: Path, name: str) -> None:
        folder.mkdir()
        self._folder = folder
        key, ca_key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
        issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"CA {name}")])
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
        ca = _begun(issuer, issuer, ca_key.public_key()).add_extension(
            x509.BasicConstraints(ca=True, path_length=0), critical=True
        )
        leaf = _begun(subject, issuer, key.public_key()).add_extension(
            x509.SubjectAlternativeName([address]), critical=False
        )
        for file, builder in (("ca.pem", ca), ("cert.pem", leaf)):
            certificate = builder.sign(ca_key, hashes.SHA256())
            (folder / file).write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        (folder / "key.pem").write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )

    def environment(self) -> dict[str, str]:
        """What switches TLS on with these certificates."""
        return {
            "RAY_USE_TLS": "1",
            "RAY_TLS_SERVER_CERT": str(self._folder / "cert.pem"),
            "RAY_TLS_SERVER_KEY": str(self._folder / "key.pem"),
            "RAY_TLS_CA_CERT": str(self._folder / "ca.pem"),
        }


def _begun(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
    )
