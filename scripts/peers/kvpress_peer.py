"""One timed run of kvpress: transformers on the CPU, with KeyDiffPress keeping --budget entries of the prompt.

kvpress computes the prompt in one pass and, layer after layer, removes entries right after the layer's attention to
all of them: the prompt's time is that of a full cache. Nothing is removed while answering. Without --budget, or with
one that the prompt fits into, nothing is removed at all. The weights are dequantised when they are loaded.
"""

import argparse
import os
import re
import sys
from pathlib import Path

import common

os.environ |= {"TQDM_DISABLE": "1", "HF_HUB_OFFLINE": "1"}  # no progress bars; everything it needs is in the GGUF file


def fastest_type() -> str:
    """bfloat16 where the CPU computes with it, which torch then does several times as fast as with fp32."""
    info = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    return "bfloat16" if re.search(r"^(flags|Features)\s*:.*\b(avx512_bf16|amx_bf16|bf16)\b", info, re.MULTILINE) else "float32"


class KvPress:
    name = "kvpress"

    def __init__(self, options: argparse.Namespace):
        import kvpress
        import torch
        import transformers
        from importlib.metadata import version
        self.torch, self.transformers, self.kvpress = torch, transformers, kvpress
        self.version = f"kvpress {version('kvpress')}, torch {version('torch')}, transformers {version('transformers')}"
        self.budget = options.budget
        torch.set_num_threads(options.threads)
        torch.set_num_interop_threads(1)
        torch.set_grad_enabled(False)
        self.type = getattr(torch, fastest_type() if options.type == "auto" else options.type)
        source = {"pretrained_model_name_or_path": str(options.model.parent), "gguf_file": options.model.name}
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(**source)
        self.model = transformers.AutoModelForCausalLM.from_pretrained(**source, dtype=self.type).eval()
        self.cache, self.position, self.token = None, 0, 0

    def encode(self, text: str, most: int) -> list[int]:
        part = text[:most * 8]  # tokens are shorter than that nearly everywhere
        ids = self.tokenizer.encode(part, add_special_tokens=False)
        return ids if len(ids) > most or part == text else self.tokenizer.encode(text, add_special_tokens=False)

    def step(self, ids: list[int]) -> None:
        torch = self.torch
        positions = torch.arange(self.position, self.position + len(ids))
        logits = self.model(torch.tensor([ids]), past_key_values=self.cache, position_ids=positions[None],
                            cache_position=positions, logits_to_keep=1).logits
        self.position += len(ids)
        self.token = int(logits[0, -1].argmax())

    def first(self, prompt: list[int], answer: int) -> None:
        self.cache, self.position = self.transformers.DynamicCache(), 0
        removed = 1 - self.budget / len(prompt) if self.budget and self.budget < len(prompt) else 0.0
        with self.kvpress.KeyDiffPress(compression_ratio=removed)(self.model):
            self.step(prompt)

    def next(self) -> None:
        self.step([self.token])

    def finish(self) -> None:
        self.cache = None

    def cache_bytes(self) -> int | None:
        return sum(layer.keys.nbytes + layer.values.nbytes for layer in self.cache.layers)

    def note(self) -> str:
        entries = self.cache.layers[0].keys.shape[2]
        kind = str(self.type).partition(".")[2]
        return (f"{kind} weights, keys and values; the prompt in one pass, each layer evicting after it; "
                f"{entries} entries a head at the end")


def main() -> int:
    parser = common.arguments("kvpress", __doc__)
    parser.add_argument("--type", default="auto", choices=("auto", "float32", "bfloat16"),
                        help="type of weights, keys and values (default: the fastest on this CPU)")
    return common.run(parser, KvPress, "kvpress")


if __name__ == "__main__":
    sys.exit(main())
