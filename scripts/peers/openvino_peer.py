"""One timed run of OpenVINO GenAI on the CPU, with its full cache or, with --evict, its cache eviction.

The pipeline is the one with paged attention (ContinuousBatchingPipeline), which is the one that can evict. It computes
and stores keys and values in the types that OpenVINO chooses on the machine. Its eviction starts after the prompt: the
first --start and the last --recent entries stay, of the others those with the largest attention, --budget in all.
"""

import argparse
import os
import re
import sys
from pathlib import Path

import common

BLOCK = 32  # entries in a block of its cache on CPUs


class OpenVino:
    def __init__(self, options: argparse.Namespace):
        import openvino
        import openvino_genai

        import repack
        self.openvino, self.genai = openvino, openvino_genai
        self.name = "openvino-evict" if options.evict else "openvino"
        self.version = f"openvino-genai {openvino_genai.__version__.partition('-')[0]}"
        self.options = options
        model = repack.without_q5(options.model, Path(os.environ["KEYNEST_PEERS_DIR"]) / "repacked")
        self.repacked = model != options.model
        self.pipeline = openvino_genai.ContinuousBatchingPipeline(
            str(model), self.scheduler(), "CPU", {"INFERENCE_NUM_THREADS": options.threads})
        self.tokenizer = self.pipeline.get_tokenizer()
        self.request, self.cache, self.used = None, 0, 0.0

    def scheduler(self):
        scheduler = self.genai.SchedulerConfig()
        scheduler.max_num_batched_tokens = self.options.chunk
        scheduler.enable_prefix_caching = False
        scheduler.cache_size = 0  # as much as the request needs
        if self.options.evict:
            scheduler.use_cache_eviction = True
            scheduler.cache_eviction_config = self.genai.CacheEvictionConfig(
                self.options.start, self.options.recent, self.options.budget, self.genai.AggregationMode.NORM_SUM)
        return scheduler

    def encode(self, text: str, most: int) -> list[int]:
        """In pieces, since the tokenizer made from a GGUF file cuts its input at the model's context length. A piece begins
        with a line that is not indented: there no token reaches from one line into the next."""
        ids = []
        for piece in re.split(r"(?<=\n)(?=\S)", text):
            ids += self.tokenizer.encode(piece, add_special_tokens=False).input_ids.data.reshape(-1).tolist()
            if len(ids) >= most:
                break
        return ids

    def first(self, prompt: list[int], answer: int) -> None:
        import numpy
        config = self.genai.GenerationConfig()
        config.max_new_tokens, config.do_sample, config.ignore_eos = answer, False, True
        ids = self.openvino.Tensor(numpy.array([prompt], dtype=numpy.int64))
        self.request = self.pipeline.add_request(0, ids, config)
        self.cache = 0
        self.next()

    def next(self) -> None:
        """Steps of the pipeline until one yields a token: a prompt takes several."""
        while not self.request.can_read():
            if not self.pipeline.has_non_finished_requests():
                raise common.PeerError("OpenVINO GenAI ended the answer before its last token")
            self.pipeline.step()
        self.request.read()
        metrics = self.pipeline.get_metrics()
        self.cache = max(self.cache, metrics.kv_cache_size_in_bytes)
        self.used = metrics.cache_usage or self.used  # 0 once the request is over

    def finish(self) -> None:
        while self.pipeline.has_non_finished_requests():
            self.pipeline.step()

    def cache_bytes(self) -> int | None:
        return self.cache

    def note(self) -> str:
        computes, stores = (self.type_of(name) for name in ("INFERENCE_PRECISION_HINT", "KV_CACHE_PRECISION"))
        weights = "Q5_0 repacked as Q8_0 without loss" if self.repacked else "weights of the file"
        evicts = (f"evicts after the prompt to {self.options.budget} entries and keeps the memory" if self.options.evict
                  else "full cache")
        return (f"{evicts}; {weights}; computes in {computes}, keys and values in {stores}; {self.used:.0f} % of the cache "
                "in use at the end")

    def type_of(self, name: str) -> str:
        """The type that OpenVINO takes on this machine unless told otherwise."""
        return self.openvino.Core().get_property("CPU", name).to_string()


def fit_budget(options: argparse.Namespace) -> None:
    """Makes the budget one that OpenVINO takes: whole blocks, and at least one beside those that always stay."""
    given = options.budget or 2048
    options.budget = max(given // BLOCK, 3) * BLOCK
    options.recent = min(options.recent, options.budget - options.start - BLOCK)
    if options.recent < BLOCK or options.start % BLOCK or options.recent % BLOCK:
        raise common.PeerError(f"--start {options.start} and --recent {options.recent} have to be multiples of {BLOCK}, "
                               f"and leave {BLOCK} or more of the {options.budget} entries to choose")
    if options.budget != given:
        print(f"--budget {given} is taken as {options.budget}: whole blocks of {BLOCK} entries, 3 at least", file=sys.stderr)


def load(options: argparse.Namespace) -> OpenVino:
    if options.evict:
        fit_budget(options)
    return OpenVino(options)


def main() -> int:
    evict = "--evict" in sys.argv
    parser = common.arguments("openvino-evict" if evict else "openvino", __doc__)
    parser.add_argument("--evict", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--chunk", default=256, type=common.positive, help="tokens of a step (default 256)")
    parser.add_argument("--start", default=32, type=common.positive, help="first entries that stay (default 32)")
    parser.add_argument("--recent", default=128, type=common.positive, help="last entries that stay (default 128)")
    return common.run(parser, load, "openvino")


if __name__ == "__main__":
    sys.exit(main())
