"""AWS on loopback: moto behind a gateway that counts requests, ends keys early and can refuse.

moto answers as S3, IAM and STS do and checks signatures and policies, but its keys live for an hour
and it has one region and no metadata service that asks for a token. The gateway adds these; it is
also what a proxy is.
"""

from __future__ import annotations

import base64
import http.client
import json
import re
import ssl
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import botocore.session

from helpers import servers

ROLE = "arn:aws:iam::123456789012:role/train"
_ALLOW_S3 = json.dumps(
    {"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Action": "s3:*", "Resource": "*"}}
)


def web_token(subject: str) -> str:
    """What a cluster writes into a file for a job: three parts in base64."""
    parts = ({"alg": "none"}, {"sub": subject}, "no signature")
    encoded = [base64.urlsafe_b64encode(json.dumps(part).encode()).decode() for part in parts]
    return ".".join(part.rstrip("=") for part in encoded)


@dataclass
class Keys:
    key: str
    secret: str
    token: str = ""

    @property
    def environment(self) -> dict[str, str]:
        names = {"AWS_ACCESS_KEY_ID": self.key, "AWS_SECRET_ACCESS_KEY": self.secret}
        return {**names, "AWS_SESSION_TOKEN": self.token} if self.token else names


@dataclass
class Account:
    """moto with a user who may read, one who may do nothing, and a role."""

    address: str
    reader: Keys
    nobody: Keys
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def _check_who_asks(self, check: bool) -> None:
        body = b"0" if check else b"inf"
        url = f"{self.address}/moto-api/reset-auth"
        request = urllib.request.Request(url, body, {"Content-Type": "text/plain"})
        urllib.request.urlopen(request, timeout=20).close()

    @contextmanager
    def unsigned(self) -> Iterator[None]:
        """For requests that nobody signs: where moto checks signatures, it fails without one."""
        with self._lock:
            self._check_who_asks(False)
            yield
            self._check_who_asks(True)


def _client(address: str, service: str) -> Any:
    return botocore.session.Session().create_client(
        service,
        endpoint_url=address,
        region_name="us-east-1",
        aws_access_key_id="setup",
        aws_secret_access_key="setup",
    )


def _user(iam: Any, name: str) -> Keys:
    iam.create_user(UserName=name)
    made = iam.create_access_key(UserName=name)["AccessKey"]
    return Keys(made["AccessKeyId"], made["SecretAccessKey"])


@contextmanager
def account(files: dict[str, bytes]) -> Iterator[Account]:
    """With a bucket "bucket" of these files; from then on, it is checked who asks."""
    with servers.moto() as address:
        iam, s3 = _client(address, "iam"), _client(address, "s3")
        made = Account(address, _user(iam, "reader"), _user(iam, "nobody"))
        iam.put_user_policy(UserName="reader", PolicyName="s3", PolicyDocument=_ALLOW_S3)
        iam.create_role(RoleName="train", AssumeRolePolicyDocument="{}")
        iam.put_role_policy(RoleName="train", PolicyName="s3", PolicyDocument=_ALLOW_S3)
        s3.create_bucket(Bucket="bucket")
        for name, data in files.items():
            acl = "public-read" if name.startswith("public/") else "private"
            s3.put_object(Bucket="bucket", Key=name, Body=data, ACL=acl)
        with made.unsigned():
            pass  # from here on
        yield made


@dataclass
class Seen:
    """A request that reached the gateway."""

    what: str  # "s3", "sts", "imds"
    method: str
    path: str
    host: str
    key: str  # the access key that signed it; "": nobody did
    status: int
    proxied: bool  # it came as proxies are asked


@dataclass
class Refusal:
    status: int
    code: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    more: str = ""

    @property
    def body(self) -> bytes:
        return f"<Error><Code>{self.code}</Code>{self.more}</Error>".encode() if self.code else b""


@dataclass
class Life:
    """Of a pair of keys."""

    key: str
    began: float
    end: int

    @property
    def end_text(self) -> str:
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.end))


#: Whether to refuse a request: by what is asked ("s3", "sts", "imds"; "tunnel" of a proxy) and the
#: headers.
Refuse = Callable[[str, Any], Refusal | None]


@dataclass
class Gateway:
    account: Account
    sts: Any
    address: str = ""
    life_s: float = 3600
    refuse: Refuse = lambda what, headers: None
    seen: list[Seen] = field(default_factory=list)
    lives: list[Life] = field(default_factory=list)
    given: list[Keys] = field(default_factory=list)
    on_sts: Callable[[str], None] = lambda body: None
    lenient: bool = False  # takes keys that have ended
    imds_secret: str = "imds-session"
    certificate: ssl.SSLContext | None = None  # of a proxy that ends TLS itself
    lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, what: str) -> int:
        return sum(seen.what == what for seen in self.seen)

    def statuses(self, what: str) -> set[int]:
        return {seen.status for seen in self.seen if seen.what == what}

    def begin_life(self, key: str) -> Life:
        """Of a new key: it ends with a whole second, as AWS's do."""
        now = time.time()
        self.lives.append(Life(key, now, int(now + self.life_s)))
        return self.lives[-1]

    def has_ended(self, key: str) -> bool:
        over = any(life.key == key and time.time() >= life.end for life in self.lives)
        return over and not self.lenient

    def end_all(self) -> None:
        for life in self.lives:
            life.end = 0

    def session_keys(self) -> Keys:
        with self.account.unsigned():
            made = self.sts.assume_role_with_web_identity(
                RoleArn=ROLE, RoleSessionName="test", WebIdentityToken=web_token("test")
            )["Credentials"]
        self.given.append(Keys(made["AccessKeyId"], made["SecretAccessKey"], made["SessionToken"]))
        self.begin_life(self.given[-1].key)
        return self.given[-1]

    def keys_used(self) -> set[str]:
        return {seen.key for seen in self.seen if seen.what == "s3"}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    gateway: Gateway  # set by gateway()
    tunnelled = False

    def log_message(self, format: str, *arguments: Any) -> None:
        pass

    def _answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _forward(self, path: str, body: bytes) -> tuple[int, dict[str, str], bytes]:
        """As it came: the signature is over the host that was asked."""
        moto = http.client.HTTPConnection(urlsplit(self.gateway.account.address).netloc, timeout=30)
        moto.putrequest(self.command, path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            if name.lower() not in ("connection", "proxy-connection"):
                moto.putheader(name, value)
        signed = "Authorization" in self.headers
        with nullcontext() if signed else self.gateway.account.unsigned():
            moto.endheaders(body)
            answer = moto.getresponse()
        kept = ("etag", "content-range", "last-modified", "content-type", "x-amz-bucket-region")
        headers = {n: v for n, v in answer.getheaders() if n.lower() in kept}
        data = answer.read()
        moto.close()
        return answer.status, headers, data

    def _sts(self, path: str, body: bytes) -> tuple[int, dict[str, str], bytes]:
        self.gateway.on_sts(body.decode())
        status, headers, data = self._forward(path, body)
        names = ("AccessKeyId", "SecretAccessKey", "SessionToken")
        found = [re.search(f"<{name}>(.*)</{name}>", data.decode()) for name in names]
        if status == 200:
            self.gateway.given.append(Keys(*(match[1] for match in found if match)))
            end = self.gateway.begin_life(self.gateway.given[-1].key).end_text
            data = re.sub(rb"(<Expiration>).*(</Expiration>)", rf"\g<1>{end}\2".encode(), data)
        return status, headers, data

    def _imds(self, path: str) -> tuple[int, dict[str, str], bytes]:
        """Version 2: without a token it gives nothing."""
        if path == "/latest/api/token":
            seconds = self.headers["X-aws-ec2-metadata-token-ttl-seconds"]
            good = self.command == "PUT" and seconds
            return (200, {}, self.gateway.imds_secret.encode()) if good else (400, {}, b"")
        if self.headers["X-aws-ec2-metadata-token"] != self.gateway.imds_secret:
            return 401, {}, b""
        if path == "/latest/meta-data/iam/security-credentials/":
            return 200, {}, b"train"
        made = self.gateway.session_keys()
        keys = {
            "Code": "Success",
            "AccessKeyId": made.key,
            "SecretAccessKey": made.secret,
            "Token": made.token,
            "Expiration": self.gateway.lives[-1].end_text,
        }
        return 200, {}, json.dumps(keys).encode()

    def _s3(self, path: str, key: str, body: bytes) -> tuple[int, dict[str, str], bytes]:
        if self.gateway.has_ended(key):
            return 400, {}, Refusal(400, "ExpiredToken").body
        return self._forward(path, body)

    def _serve(self) -> None:
        gateway = self.gateway
        body = self.rfile.read(int(self.headers["Content-Length"] or 0))
        proxied = self.tunnelled or not self.path.startswith("/")
        path = re.sub("^https?://[^/]*", "", self.path)
        found = re.search(r"Credential=([^/]*)/", self.headers["Authorization"] or "")
        key = found[1] if found else ""
        what = "imds" if path.startswith("/latest/") else "sts" if body else "s3"
        refusal = gateway.refuse(what, self.headers)
        if refusal:
            status, headers, data = refusal.status, refusal.headers, refusal.body
        elif what == "imds":
            status, headers, data = self._imds(path)
        elif what == "sts":
            status, headers, data = self._sts(path, body)
        else:
            status, headers, data = self._s3(path, key, body)
        with gateway.lock:
            host = self.headers["Host"]
            gateway.seen.append(Seen(what, self.command, path, host, key, status, proxied))
        self._answer(status, headers, data)

    do_GET = do_PUT = do_POST = do_HEAD = _serve

    def do_CONNECT(self) -> None:
        """A tunnel to any host ends here."""
        refusal = self.gateway.refuse("tunnel", self.headers)
        if refusal:
            self._answer(refusal.status, refusal.headers, refusal.body)
            return
        assert self.gateway.certificate, "nobody should ask for a tunnel"
        self.send_response(200)
        self.end_headers()
        inner = self.gateway.certificate.wrap_socket(self.connection, server_side=True)
        self.tunnelled = True
        self.connection = self.request = inner
        self.rfile, self.wfile = inner.makefile("rb", -1), inner.makefile("wb", 0)
        self.close_connection = False


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # the client went away


@contextmanager
def gateway(account: Account, certificate: tuple[Path, Path] | None = None) -> Iterator[Gateway]:
    made = Gateway(account, _client(account.address, "sts"))
    if certificate:
        made.certificate = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        made.certificate.load_cert_chain(*certificate)
    handler = type("Handler", (_Handler,), {"gateway": made})
    with _Server(("127.0.0.1", 0), handler) as server:
        made.address = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield made
        finally:
            server.shutdown()
            thread.join()
