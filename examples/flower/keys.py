"""Makes what the machines know each other by: certificates for TLS, and a key for every SuperNode.

    python keys.py certificates FOLDER HOST...    an authority, and a SuperLink's certificate for these names and addresses
    python keys.py supernode FOLDER NAME...       a pair of keys for every SuperNode of these names
"""

from __future__ import annotations

import datetime
import ipaddress
import os
import sys
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

DAYS = 365


def make_certificates(folder: Path, hosts: list[str]) -> None:
    """Writes `ca.pem`, which everybody needs, and `superlink.pem` and `superlink.key`, which stay with the SuperLink."""
    folder.mkdir(parents=True, exist_ok=True)
    authority_key, key = ec.generate_private_key(ec.SECP384R1()), ec.generate_private_key(ec.SECP384R1())
    authority_name = name("Kinfolk's own authority")
    authority = (
        certificate(authority_name, authority_name, authority_key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(signing(), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(authority_key.public_key()), critical=False)
        .sign(authority_key, hashes.SHA384())
    )
    superlink = (
        certificate(name(hosts[0]), authority_name, key)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([alternative(host) for host in hosts]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False)
        .sign(authority_key, hashes.SHA384())
    )
    # The authority's key is not kept: nobody can make a second certificate that these machines would trust.
    write_secret(folder / "superlink.key", key, serialization.PrivateFormat.PKCS8)
    (folder / "ca.pem").write_bytes(authority.public_bytes(serialization.Encoding.PEM))
    (folder / "superlink.pem").write_bytes(superlink.public_bytes(serialization.Encoding.PEM))


def make_supernode_key(folder: Path, supernode: str) -> None:
    """Writes `NAME`, which stays with the SuperNode, and `NAME.pub`, which the SuperLink is told."""
    folder.mkdir(parents=True, exist_ok=True)
    key = ec.generate_private_key(ec.SECP384R1())
    write_secret(folder / supernode, key, serialization.PrivateFormat.OpenSSH)
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    (folder / f"{supernode}.pub").write_bytes(public + b"\n")


def name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def certificate(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.timezone.utc)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        # Clocks differ a little between machines.
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=DAYS))
    )


def signing() -> x509.KeyUsage:
    """What an authority's key is for, and nothing else; strict programs refuse one that does not say so."""
    others = ["digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement"]
    others += ["encipher_only", "decipher_only"]
    return x509.KeyUsage(key_cert_sign=True, crl_sign=True, **dict.fromkeys(others, False))


def write_secret(path: Path, key: ec.EllipticCurvePrivateKey, form: serialization.PrivateFormat) -> None:
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        sys.exit(f"{path}: is there already, and machines may be using it; want a new name or another folder")
    with os.fdopen(file, "wb") as secret:
        secret.write(key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["certificates", folder, *hosts] if hosts:
            make_certificates(Path(folder), hosts)
        case ["supernode", folder, *names] if names:
            for supernode in names:
                make_supernode_key(Path(folder), supernode)
        case _:
            sys.exit(__doc__)
