"""Loads SavedModels as TensorFlow Serving does: through TensorFlow's C API, in a session.

Serving's loader is the same C++ function. It runs the graph of a signature after the init
op has filled the tables; `tf.saved_model.load` in Python calls functions instead.
"""

import base64
import contextlib
import ctypes
import glob
import itertools
import json
import os
from collections.abc import Iterable, Mapping

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import meta_graph_pb2

from serving import export

_FOLDER = os.path.dirname(tf.__file__)
_STRING_BYTES = 24  # of a TF_TString


class _Buffer(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("length", ctypes.c_size_t),
        ("free", ctypes.c_void_p),
    ]


class _Output(ctypes.Structure):
    _fields_ = [("operation", ctypes.c_void_p), ("index", ctypes.c_int)]


def _library():
    library = ctypes.CDLL(f"{_FOLDER}/libtensorflow_cc.so.2", ctypes.RTLD_GLOBAL)
    returned = {
        "TF_NewStatus TF_NewGraph TF_NewSessionOptions TF_AllocateTensor "
        "TF_LoadSessionFromSavedModel TF_GraphOperationByName TF_TensorData "
        "TF_StringGetDataPointer TF_LoadLibrary": ctypes.c_void_p,
        "TF_NewBuffer": ctypes.POINTER(_Buffer),
        "TF_Message": ctypes.c_char_p,
        "TF_StringGetSize": ctypes.c_size_t,
        "TF_Dim": ctypes.c_int64,
    }
    for names, kind in returned.items():
        for name in names.split():
            getattr(library, name).restype = kind
    return library


class GraphSession:
    """A SavedModel in a session of TensorFlow's C API."""

    def __init__(self, path, packages: Iterable[str] = ()):
        self._c = _library()
        for package in packages:
            folder = os.path.join(os.path.dirname(_FOLDER), package)
            for file in glob.glob(f"{folder}/**/*.so", recursive=True):
                self._call("TF_LoadLibrary", file.encode())
        self._graph = ctypes.c_void_p(self._c.TF_NewGraph())
        meta = self._c.TF_NewBuffer()
        self._session = ctypes.c_void_p(
            self._call(
                "TF_LoadSessionFromSavedModel",
                ctypes.c_void_p(self._c.TF_NewSessionOptions()),
                None,
                os.fsencode(path),
                (ctypes.c_char_p * 1)(b"serve"),
                1,
                self._graph,
                meta,
            )
        )
        content = ctypes.string_at(meta.contents.data, meta.contents.length)
        self._c.TF_DeleteBuffer(meta)
        meta_graph = meta_graph_pb2.MetaGraphDef.FromString(content)
        self.signatures = {
            name: signature
            for name, signature in meta_graph.signature_def.items()
            if not name.startswith("__")
        }

    def run(
        self, signature: str, inputs: Mapping[str, np.ndarray]
    ) -> dict[str, np.ndarray]:
        """The outputs of a signature; texts are objects of bytes, both ways."""
        described = self.signatures[signature]
        assert inputs.keys() == described.inputs.keys()
        given = [self._tensor(np.asarray(value)) for value in inputs.values()]
        names = sorted(described.outputs)
        found = (ctypes.c_void_p * len(names))()
        self._call(
            "TF_SessionRun",
            self._session,
            None,
            self._places(described.inputs[name].name for name in inputs),
            (ctypes.c_void_p * len(given))(*given),
            len(given),
            self._places(described.outputs[name].name for name in names),
            found,
            len(names),
            None,
            0,
            None,
        )
        outputs = {n: self._array(t) for n, t in zip(names, found, strict=True)}
        for tensor in (*given, *found):
            self._c.TF_DeleteTensor(ctypes.c_void_p(tensor))
        return outputs

    def close(self) -> None:
        self._call("TF_CloseSession", self._session)
        self._call("TF_DeleteSession", self._session)
        self._c.TF_DeleteGraph(self._graph)

    def _call(self, name, *given):
        """Calls a function with a status, its last argument."""
        status = ctypes.c_void_p(self._c.TF_NewStatus())
        try:
            found = getattr(self._c, name)(*given, status)
            if self._c.TF_GetCode(status):
                raise RuntimeError(self._c.TF_Message(status).decode())
            return found
        finally:
            self._c.TF_DeleteStatus(status)

    def _places(self, names):
        places = []
        for name in names:
            operation, _, index = name.partition(":")
            found = self._c.TF_GraphOperationByName(self._graph, operation.encode())
            assert found, name
            places.append(_Output(found, int(index)))
        return (_Output * len(places))(*places)

    def _tensor(self, array):
        dtype = tf.as_dtype(array.dtype if array.dtype.kind in "if" else tf.string)
        is_text = dtype == tf.string
        size = _STRING_BYTES * array.size if is_text else array.nbytes
        shape = (ctypes.c_int64 * array.ndim)(*array.shape)
        tensor = self._c.TF_AllocateTensor(
            dtype.as_datatype_enum, shape, array.ndim, ctypes.c_size_t(size)
        )
        data = self._c.TF_TensorData(ctypes.c_void_p(tensor))
        if not is_text:
            ctypes.memmove(data, np.ascontiguousarray(array).ctypes.data, size)
        for number, text in enumerate(array.flat if is_text else ()):
            text = text if isinstance(text, bytes) else str(text).encode()
            place = ctypes.c_void_p(data + _STRING_BYTES * number)
            self._c.TF_StringInit(place)
            self._c.TF_StringCopy(place, text, ctypes.c_size_t(len(text)))
        return tensor

    def _array(self, tensor):
        tensor = ctypes.c_void_p(tensor)
        dtype = tf.as_dtype(self._c.TF_TensorType(tensor))
        number = self._c.TF_NumDims(tensor)
        shape = [self._c.TF_Dim(tensor, axis) for axis in range(number)]
        data = self._c.TF_TensorData(tensor)
        if dtype != tf.string:
            array = np.empty(shape, dtype.as_numpy_dtype)
            ctypes.memmove(array.ctypes.data, data, array.nbytes)
            return array
        array = np.empty(shape, object)
        for number in range(array.size):
            place = ctypes.c_void_p(data + _STRING_BYTES * number)
            text = self._c.TF_StringGetDataPointer(place)
            array.flat[number] = ctypes.string_at(text, self._c.TF_StringGetSize(place))
        return array


@contextlib.contextmanager
def loaded(path, packages=()):
    """A `GraphSession` that is closed at the end."""
    session = GraphSession(path, packages)
    try:
        yield session
    finally:
        session.close()


def _given(dtype, shape, values):
    if dtype == "int32":
        return np.array(values, np.int32).reshape(shape)
    decode = base64.b64decode if dtype == "bytes" else str.encode
    array = np.empty(shape, object)
    array.flat = [decode(text) for text in np.array(values, object).flat]
    return array


def check_calls(path, answers) -> None:
    """Asserts that a server gives the answers that serving/reload.py wrote."""
    with open(path, encoding="utf-8") as file:
        calls = list(enumerate(json.load(file)))
    calls = [pair for pair in calls if pair[1]["loader"] == "session"]
    models = itertools.groupby(calls, key=lambda pair: pair[1]["model"])
    for model, of_model in models:
        of_model = list(of_model)
        with loaded(model, of_model[0][1]["libraries"]) as session:
            for number, call in of_model:
                given = call["inputs"].items()
                inputs = {k: _given(*value) for k, value in given}
                found = session.run(call["signature"], inputs)
                expected = export._outputs(os.path.join(answers, str(number)))
                assert found.keys() == expected.keys()
                for name, value in expected.items():
                    if value.dtype == object:
                        assert found[name].tolist() == value.tolist()
                    else:
                        np.testing.assert_allclose(found[name], value, 1e-4, 1e-5)
