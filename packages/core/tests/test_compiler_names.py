"""Names of `rabbet.compiler` and `rabbet.jit` that need no compiler."""

import operator

import numpy as np
import pytest
import rabbet


def test_the_default_backend_of_compile():
    compiler = rabbet.compiler
    assert compiler.get_default_backend() == "inductor"

    def f(x):
        return x

    try:
        compiler.set_default_backend("eager")
        assert compiler.get_default_backend() == "eager" and rabbet.compile(f) is f
        with pytest.raises(TypeError, match="expected a name, a callable or None, got int"):
            compiler.set_default_backend(3)
    finally:
        compiler.set_default_backend(None)
    assert compiler.get_default_backend() == "inductor"


def test_numpy_functions_become_functions_of_tensors():
    double = rabbet.compiler.wrap_numpy(lambda a, *, b: {"sum": (a + b).sum(), "all": [a * 2]})
    found = double(rabbet.arange(3), b=np.ones(3))
    assert found["sum"].item() == 6 and found["all"][0].tolist() == [0, 2, 4]
    with pytest.raises(RuntimeError, match="requires grad"):
        double(rabbet.ones(2, requires_grad=True), b=1)
    with pytest.raises(TypeError, match="wrap_numpy: expected a function, got int"):
        rabbet.compiler.wrap_numpy(3)


def test_filters_of_guards_and_substitutes():
    compiler = rabbet.compiler
    assert compiler.keep_tensor_guards_unsafe([1, 2], keep_parameters=True) == [True, True]
    assert compiler.skip_all_guards_unsafe([1, 2]) == [False, False]
    assert compiler.set_enable_guard_collectives(True) is False
    assert compiler.set_enable_guard_collectives(False) is True

    def stand_in(a, b):
        return 1

    assert compiler.substitute_in_graph(operator.indexOf)(stand_in) is stand_in
    with pytest.raises(TypeError, match="substitute_in_graph: expected a function, got int"):
        compiler.substitute_in_graph(3)
    assert compiler.nested_compile_region(stand_in) is stand_in
    assert compiler.nested_compile_region(max_reuse_entries=4)(stand_in) is stand_in


def test_settings_of_the_script_compiler_are_kept():
    jit = rabbet.jit
    assert not jit.onednn_fusion_enabled()
    jit.enable_onednn_fusion(True)
    assert jit.onednn_fusion_enabled()
    jit.enable_onednn_fusion(False)
    before = jit.set_fusion_strategy([("STATIC", 1)])
    assert jit.set_fusion_strategy(before) == [("STATIC", 1)]
    with pytest.raises(ValueError, match="expected 'STATIC' or 'DYNAMIC', got 'FAST'"):
        jit.set_fusion_strategy([("FAST", 1)])
    with jit.strict_fusion():
        assert rabbet.ones(2).sum().item() == 2
