"""Take out of a text what is nobody's business: secrets, and who and where one is.

What counts as a secret: the value of any variable whose name says so (HF_TOKEN, …_SECRET, …),
the hub's token, and whatever looks like one by its form: tokens of Hugging Face, AWS, GitHub and
others, `Authorization` headers, passwords in URLs, signatures of presigned URLs, private keys.
Versions and token ids look a little like addresses and secrets, and stay.
"""

from __future__ import annotations

import base64
import json
import os
import re
import socket
from collections.abc import Iterable, Mapping
from urllib.parse import quote, quote_plus

__all__ = ["REDACTED", "Redactor"]

REDACTED = "[redacted]"

_SHORTEST = 6  # a shorter value would be found all over innocent text
_SECRET_NAME = re.compile(
    r"TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL|PRIVATE|COOKIE|SIGNATURE|API_?KEY"
    r"|ACCESS_?KEY|AUTH|(^|_)KEY$|(^|_)PAT$|(^|_)PWD$|WEBHOOK|DSN$"
)
_HARMLESS_NAMES = frozenset(
    {"PWD", "OLDPWD", "SSH_AUTH_SOCK", "XAUTHORITY", "TOKENIZERS_PARALLELISM"}
)
_NOBODY = frozenset({"root", "ubuntu", "user", "admin", "ec2-user", "nobody", "runner", "docker"})

_FORMS = [
    re.compile(r"\bhf_[A-Za-z0-9]{8,}|hf_[A-Za-z0-9]{30,}"),
    re.compile(r"\bapi_org_[A-Za-z0-9]{8,}"),
    re.compile(r"\b(?:AKIA|ASIA|AROA|AIDA|ABIA|ACCA)[A-Z0-9]{12,}\b"),
    re.compile(r"\b(?:gh[pousr]_|github_pat_|glpat-|npm_|pypi-|dckr_pat_)[A-Za-z0-9_-]{16,}"),
    re.compile(r"\b(?:sk|pk|rk)[-_][A-Za-z0-9_-]{16,}"),
    re.compile(r"\bxox[a-z]-[A-Za-z0-9-]{8,}"),
    re.compile(r"\bAIza[A-Za-z0-9_-]{30,}"),
    re.compile(r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]+)?"),
    re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*-----|\Z)", re.DOTALL),
    re.compile(r"(?<=://)[^/\s@'\"]+(?=@)"),
    re.compile(r"(?i)(?<=\bbearer )[A-Za-z0-9._~+/=-]{8,}"),
    re.compile(
        r"(?i)(?<=[?&])(?:x-amz-(?:signature|security-token|credential)|sig|signature|token"
        r"|access_token|key)=[^&\s'\"]+"
    ),
]
_HEADER = re.compile(r"(?i)(authorization)(['\"]?\s*[:=]\s*['\"]?)([^\r\n'\"]+)")
_NAMED = re.compile(
    r"""(?ix)
    \b (?! (?:bos|eos|pad|unk|sep|cls|mask|image|video|next|first|last|max|min|num) _? tokens? \b)
    ([\w.-]{0,64} (?: token | secret | password | passwd | passphrase | api_?key | private_?key
        | access_?key(?:_id)? | credentials? | cookie ))
    (['"]? \s* [:=] \s* ['"]?)
    ([^\s'",;}\]]{8,})
    """
)
_PRINTED = re.compile(rb"[\x20-\x7e]{6,}")  # what is text in a binary file
_NAMED_IN_BINARY = re.compile(
    r"(?i)(secret|passw(?:or)?d|api_?key|access_?key)(['\"]?\s?[:=]\s?['\"]?)([!-~]{8,200})"
)

_HOMES = re.compile(r"(?<![\w.])/(?:home|Users)/[^/\s'\":,;)\]]+")
_ROOT = re.compile(r"(?<![\w./~-])/root(?![\w-])")
_EC2 = re.compile(r"\bip-\d+-\d+-\d+-\d+\b(?:\.[\w-]+)*|\bec2-\d+-\d+-\d+-\d+\b(?:\.[\w-]+)*")
_ADDRESS = re.compile(r"(?<=@)\d{1,3}(?:\.\d{1,3}){3}\b|(?<=://)\d{1,3}(?:\.\d{1,3}){3}\b")
_EMAIL = re.compile(r"\b[\w.+-]{1,64}@[\w-]{1,64}(?:\.[\w-]+)*\.[A-Za-z]{2,}\b")
_ACCOUNT = re.compile(r"(?<=::)\d{12}\b|\b\d{12}(?=\.dkr\.ecr\.)|(?<=:)\d{12}(?=:)")


class Redactor:
    """What is to be taken out on this host.

    Args:
        secrets: texts that must not appear anywhere, in no spelling of JSON, URLs or base64.
        environment: of it, the values whose names say that they are secret.
        home: home directory.
        users, hosts: names; those that every machine has stay.
    """

    def __init__(
        self,
        *,
        secrets: Iterable[str | None] = (),
        environment: Mapping[str, str] | None = None,
        home: str = "",
        users: Iterable[str] = (),
        hosts: Iterable[str] = (),
    ) -> None:
        known = {s.strip() for s in secrets if s} | set(_secret_values(environment or {}))
        spelt = {form for s in known if len(s) >= _SHORTEST for form in _spellings(s)}
        self._secrets = sorted(spelt, key=lambda s: (-len(s), s))
        home = home.rstrip("/") if home.rstrip("/") not in ("", "/root") else ""
        self._home = re.compile(re.escape(home) + r"(?![\w.-])") if home else None
        self._users = [_word(name) for name in _names(users) if name not in _NOBODY]
        self._hosts = [_word(name) for name in _names(hosts) if name != "localhost"]

    @classmethod
    def here(cls, secrets: Iterable[str | None] = ()) -> Redactor:
        """Of this process: its environment, user, home directory and host."""
        host = socket.gethostname()
        return cls(
            secrets=secrets,
            environment=os.environ,
            home=os.path.expanduser("~"),
            users=[os.environ.get(name, "") for name in ("USER", "LOGNAME", "SUDO_USER")],
            hosts=[host, host.partition(".")[0], os.environ.get("HOSTNAME", "")],
        )

    def text(self, text: str) -> str:
        """The text without them."""
        for secret in self._secrets:
            text = text.replace(secret, REDACTED)
        for form in _FORMS:
            text = form.sub(REDACTED, text)
        for named in (_HEADER, _NAMED):
            text = named.sub(lambda m: f"{m[1]}{m[2]}{REDACTED}", text)
        if self._home is not None:
            text = self._home.sub("~", text)
        text = _ROOT.sub("~", _HOMES.sub("~", text))
        for pattern in (_EC2, _ADDRESS, *self._hosts):
            text = pattern.sub("[host]", text)
        for pattern in self._users:
            text = pattern.sub("[user]", text)
        text = _EMAIL.sub("[email]", text)
        return _ACCOUNT.sub("[account]", text)

    def data(self, data: bytes) -> bytes:
        """The same of a binary file, each byte for one: lengths inside it stay true."""
        for secret in self._secrets:
            data = data.replace(secret.encode(), b"x" * len(secret.encode()))
        return _PRINTED.sub(lambda run: self._printed(run[0].decode("ascii")).encode(), data)

    def _printed(self, text: str) -> str:
        patterns = (*_FORMS, _EMAIL, self._home, _HOMES, _EC2, *self._hosts)
        for pattern in patterns:
            if pattern is not None:
                text = pattern.sub(lambda match: "x" * len(match[0]), text)
        for named in (_HEADER, _NAMED_IN_BINARY):
            text = named.sub(lambda m: f"{m[1]}{m[2]}{'x' * len(m[3])}", text)
        return text


def _secret_values(environment: Mapping[str, str]) -> Iterable[str]:
    for name, value in environment.items():
        if _SECRET_NAME.search(name.upper()) and name not in _HARMLESS_NAMES:
            yield value.strip()
            yield from (part.strip() for part in value.splitlines())


def _spellings(secret: str) -> set[str]:
    """As it stands in JSON, Python and a URL, and in base64 whatever comes before it."""
    data = secret.encode()
    encoded = set()
    for shift in range(3):
        text = base64.b64encode(bytes(shift) + data).decode()
        whole = text[(0, 2, 3)[shift] : (shift + len(data)) * 8 // 6]
        encoded |= {whole, whole.translate(str.maketrans("+/", "-_"))}
    quoted = (json.dumps(secret), json.dumps(secret, ensure_ascii=False), repr(secret))
    spelt = {secret, *(text[1:-1] for text in quoted)}
    return spelt | {quote(secret, safe=""), quote_plus(secret)} | encoded


def _names(names: Iterable[str]) -> list[str]:
    """Longest first: a name may be part of another. One letter tells of nobody."""
    return sorted({n for n in names if len(n) >= 2}, key=lambda n: (-len(n), n))


def _word(name: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![A-Za-z0-9]){re.escape(name)}(?![A-Za-z0-9])", re.IGNORECASE)
