"""Samples from a server that takes 25 ms to answer, two workers."""

TRUTH = {"causes": ["latency-bound"], "hot": "requests.", "gains": True}

import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import requests
from common import DataLoader, batches, device, settings
from torch.utils.data import Dataset

BATCH = 4
BODY = np.zeros(4096, "f4").tobytes()


class Answer(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    places = threading.Semaphore(64)

    def do_GET(self) -> None:
        with self.places:
            time.sleep(0.025)
        self.send_response(200)
        self.send_header("Content-Length", str(len(BODY)))
        self.end_headers()
        self.wfile.write(BODY)

    def log_message(self, *_: object) -> None:
        pass


class Remote(Dataset):
    def __init__(self, url: str, length: int) -> None:
        self.url, self.length, self.session = url, length, None

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int):
        if self.session is None:
            self.session = requests.Session()
        return np.frombuffer(self.session.get(f"{self.url}/{index}").content, "f4").copy()


def serve(places: int) -> str:
    """A server in a process of its own; its address."""
    import multiprocessing
    import os
    import signal

    Answer.places = threading.Semaphore(places)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    if (child := os.fork()) == 0:
        server.serve_forever()
    server.socket.close()
    multiprocessing.util.Finalize(None, os.kill, (child, signal.SIGKILL), exitpriority=0)
    return f"http://127.0.0.1:{server.server_port}"


def main(places: int, workers: int) -> None:
    """Train on what the server gives."""
    dataset = Remote(serve(places), batches(40) * BATCH)
    loader = DataLoader(dataset, **settings(batch_size=BATCH, num_workers=workers))
    for _batch in loader:
        device(0.01)


if __name__ == "__main__":
    main(places=64, workers=2)
