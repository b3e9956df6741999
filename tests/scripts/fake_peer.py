"""A peer whose engine is nothing: what scripts/peers/common.py makes of it is what test_peers.py looks at.

FAKE_PEER=missing: its packages are not installed. FAKE_PEER=noisy: its engine prints to standard output.
"""

import os
import sys
import time

import common


class Fake:
    name, version = "fake", "fake 1"

    def __init__(self, options):
        if os.environ.get("FAKE_PEER") == "missing":
            raise ImportError("No module named 'fake'")
        self.budget, self.held, self.most, self.ended = options.budget, 0, 0, 0

    def encode(self, text, most):
        return [ord(character) for character in text]

    def first(self, prompt, answer):
        self.held, self.answer = len(prompt), answer
        if os.environ.get("FAKE_PEER") == "noisy":
            os.system("echo noise")
        time.sleep(0.02)

    def next(self):
        self.held += 1
        time.sleep(0.01)

    def finish(self):
        self.ended += 1

    def cache_bytes(self):
        return self.held * 10

    def note(self):
        return f"budget {self.budget}, {self.ended} requests before"


if __name__ == "__main__":
    sys.exit(common.run(common.arguments("fake", "A fake."), Fake, "kvpress"))
