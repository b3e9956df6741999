"""Tests of the scripts that need none of what they install: syntax, the seam of scripts/peers/*, torch's stand-ins.

    test_peers.py            KEYNEST_PEER_LLAMA and KEYNEST_TEST_MODEL name peer_llama and a model to run it with
"""

import ast
import ctypes
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PEERS = ROOT / "scripts" / "peers"
PROGRAMS = {"llama.cpp": "llama.cpp", "openvino": "openvino", "openvino-evict": "openvino", "kvpress": "kvpress",
            "kvpress-score": "kvpress"}
FIELDS = {"engine": str, "version": str, "prompt_tokens": int, "ttft_seconds": float, "decode_tokens_per_second": float,
          "peak_resident_bytes": int, "cache_bytes": (int, type(None)), "note": str}


def run(*command: object, **environment: str) -> subprocess.CompletedProcess:
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, env=os.environ | environment)


def scripts_of(kind: str) -> list[Path]:
    """Files of scripts/ that are bash or python3, by their names or first lines."""
    suffix = {"bash": ".sh", "python3": ".py"}[kind]
    files = [path for path in sorted((ROOT / "scripts").rglob("*")) if path.is_file() and path.suffix != ".pyc"]
    return [path for path in files if path.suffix == suffix or kind in path.read_text(encoding="utf-8").split("\n", 1)[0]]


def unused_imports(tree: ast.AST) -> set[str]:
    imported = {(name.asname or name.name).split(".")[0] for node in ast.walk(tree)
                if isinstance(node, (ast.Import, ast.ImportFrom)) for name in node.names}
    return imported - {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


class Scripts(unittest.TestCase):
    def test_python_parses_and_imports_only_what_it_uses(self):
        scripts = scripts_of("python3")
        self.assertIn(PEERS / "common.py", scripts)
        for script in scripts:
            with self.subTest(script.name):
                self.assertEqual(unused_imports(ast.parse(script.read_text(encoding="utf-8"))), set())

    def test_bash_parses(self):
        scripts = scripts_of("bash")
        self.assertIn(ROOT / "scripts" / "get-peers", scripts)
        for script in scripts:
            with self.subTest(script.name):
                self.assertEqual(run("bash", "-n", script).stderr, "")

    def test_get_peers_names_what_it_knows(self):
        done = run(ROOT / "scripts" / "get-peers", "tensorflow")
        self.assertEqual(done.returncode, 2)
        for package in set(PROGRAMS.values()):
            self.assertIn(package, done.stderr)


class NotInstalled(unittest.TestCase):
    def test_programs_name_the_script_that_installs(self):
        with tempfile.TemporaryDirectory() as empty:
            for program, package in PROGRAMS.items():
                with self.subTest(program):
                    done = run(PEERS / program, KEYNEST_PEERS_DIR=empty)
                    self.assertEqual((done.returncode, done.stdout), (3, ""))
                    self.assertIn(f"scripts/get-peers {package}", done.stderr)

    def test_half_an_installation_is_none(self):
        with tempfile.TemporaryDirectory() as folder:
            binary = Path(folder, "openvino", "bin")
            binary.mkdir(parents=True)
            (binary / "python").symlink_to(sys.executable)
            self.assertEqual(run(PEERS / "openvino", KEYNEST_PEERS_DIR=folder).returncode, 3)


class Seam(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.model, self.prompt = Path(self.folder.name, "model.gguf"), Path(self.folder.name, "prompt.txt")
        self.model.touch()
        self.prompt.write_text("x" * 200)

    def peer(self, *options: object, fake: str = "") -> subprocess.CompletedProcess:
        return run(sys.executable, Path(__file__).with_name("fake_peer.py"), "--model", self.model, "--prompt", self.prompt,
                   "--threads", 1, *options, PYTHONPATH=str(PEERS), FAKE_PEER=fake)

    def test_one_line_of_json(self):
        done = self.peer("--tokens", 100, "--answer", 11, "--budget", 32, fake="noisy")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.count("\n"), 1)
        figures = json.loads(done.stdout)
        self.assertEqual(list(figures), list(FIELDS))
        for field, kind in FIELDS.items():
            self.assertIsInstance(figures[field], kind, field)
        self.assertEqual((figures["engine"], figures["prompt_tokens"]), ("fake", 100))
        self.assertEqual(figures["cache_bytes"], 1100)  # the prompt and the 10 tokens that were handed back
        self.assertTrue(figures["note"].startswith("budget 32, 1 requests before; "))
        self.assertGreaterEqual(figures["ttft_seconds"], 0.02)
        self.assertLessEqual(figures["decode_tokens_per_second"], 100)
        self.assertIn("noise", done.stderr)

    def test_what_the_user_has_to_put_right(self):
        for options, words in ((("--tokens", 201), "only 200"), (("--tokens", 9, "--answer", 1), "--answer 1"),
                               (("--tokens", 9, "--model", "none.gguf"), "scripts/get-model"),
                               (("--tokens", 9, "--prompt", "none.txt"), "none.txt")):
            with self.subTest(words):
                done = self.peer(*options)
                self.assertEqual((done.returncode, done.stdout), (1, ""))
                self.assertIn(words, done.stderr)
        self.assertEqual(self.peer("--tokens", 0).returncode, 2)

    def test_missing_packages(self):
        done = self.peer("--tokens", 9, fake="missing")
        self.assertEqual((done.returncode, done.stdout), (3, ""))
        self.assertIn("scripts/get-peers kvpress", done.stderr)


@unittest.skipUnless(all(map(shutil.which, ("cc", "nm", "readelf"))), "no C compiler")
class StandIns(unittest.TestCase):
    def test_a_library_loads_without_the_gpu_libraries_it_is_linked_with(self):
        with tempfile.TemporaryDirectory() as folder:
            library = self.linked_with_a_missing_one(Path(folder, "lib"))
            with self.assertRaises(OSError):
                ctypes.CDLL(str(library), ctypes.DEFAULT_MODE | os.RTLD_NOW)
            done = run(sys.executable, PEERS / "torch_stand_ins.py", folder)
            self.assertEqual(done.returncode, 0, done.stderr)
            loaded = ctypes.CDLL(str(library), ctypes.DEFAULT_MODE | os.RTLD_NOW)
            self.assertEqual(loaded.ask(), 100)

    def linked_with_a_missing_one(self, folder: Path) -> Path:
        """A library that calls one function with a version and one without of libcudart.so.13, which is not there."""
        folder.mkdir()
        (folder / "gpu.c").write_text("int cudaGetDeviceCount(void) { return 1; } int ncclCount(void) { return 2; }")
        (folder / "versions").write_text("libcudart.so.13 { global: cudaGetDeviceCount; };")
        (folder / "user.c").write_text("int cudaGetDeviceCount(void), ncclCount(void);\n"
                                       "int ask(void) { return cudaGetDeviceCount() + ncclCount(); }")
        gpu, library = folder / "libcudart.so.13", folder / "libuser.so"
        named = ["-Wl,-soname,libcudart.so.13", f"-Wl,--version-script={folder}/versions"]
        for command in ([*named, folder / "gpu.c", "-o", gpu], ["-Wl,-rpath,$ORIGIN", folder / "user.c", gpu, "-o", library]):
            subprocess.run(["cc", "-shared", "-fPIC", *command], check=True)
        gpu.unlink()
        return library


class LlamaCpp(unittest.TestCase):
    def setUp(self):
        program, self.model = os.environ.get("KEYNEST_PEER_LLAMA", ""), os.environ.get("KEYNEST_TEST_MODEL", "")
        if not Path(program).is_file() or not Path(self.model).is_file():
            self.skipTest("no peer_llama or no model; scripts/get-model smollm2 fetches one")
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        binary = Path(self.folder.name, "llama.cpp", "bin")
        binary.mkdir(parents=True)
        (binary / "peer_llama").symlink_to(program)
        (binary.parent / "installed").touch()
        self.prompt = Path(self.folder.name, "prompt.txt")
        self.prompt.write_text("The licence is a text that many have read. " * 10)

    def peer(self, *options: object) -> subprocess.CompletedProcess:
        return run(PEERS / "llama.cpp", "--model", self.model, "--prompt", self.prompt, "--threads", 2, *options,
                   KEYNEST_PEERS_DIR=self.folder.name)

    def test_figures(self):
        done = self.peer("--tokens", 70, "--answer", 3, "--budget", 32)
        self.assertEqual(done.returncode, 0, done.stderr)
        figures = json.loads(done.stdout)
        self.assertEqual(list(figures), list(FIELDS))
        for field, kind in FIELDS.items():
            self.assertIsInstance(figures[field], kind, field)
        self.assertEqual((figures["engine"], figures["prompt_tokens"]), ("llama.cpp", 70))
        full = 72 * 30 * 3 * 2 * 64 * 2  # tokens, layers, KV heads, keys and values, numbers, bytes: SmolLM2-135M
        self.assertLess(abs(figures["cache_bytes"] / full - 1), 0.02)

    def test_text_too_short(self):
        done = self.peer("--tokens", 5000)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("give a longer text", done.stderr)


if __name__ == "__main__":
    unittest.main()
