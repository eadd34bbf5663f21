"""A machine without a driver: questions are answered at once, and what a device is asked for says what is missing."""

NOWHERE = {"RABBET_CUDA_DRIVER": "/nowhere/libcuda.so.1"}
COST = """
import time
start = time.process_time()
import rabbet
rabbet.zeros(1)
imported = time.process_time()
there = rabbet.cuda.is_available()
print(imported - start, time.process_time() - imported, there)
"""
KERNELS = """
import rabbet
print(rabbet.cuda.is_available(), sum("cuda" in rabbet._C.op_info(n)["kernels"] for n in rabbet._C.record_names()))
"""
ASKED = """
import rabbet
for ask in (lambda: rabbet.zeros(3, device="cuda"), lambda: rabbet.ones(3).to("cuda"), lambda: rabbet.ones(3).cuda()):
    try: ask()
    except rabbet.DeviceError as error: print(error)
print((rabbet.ones(3) + 1).tolist())
"""


def test_no_kernel_is_registered(run, simulator):
    assert run(KERNELS, **NOWHERE) == "False 0\n"
    answer, count = run(KERNELS, **simulator).split()
    assert answer == "True" and int(count) > 200


def test_asking_whether_there_is_a_device_costs_less_than_an_import_and_an_operator(run):
    """Of 5 processes the best one: 0.4 of it; with kernels to register it is as much (1.0)."""
    ratios = []
    for _ in range(5):
        imported, asked, there = run(COST, **NOWHERE).split()
        assert there == "False"
        ratios.append(float(asked) / float(imported))
    assert min(ratios) < 0.7, ratios


def test_a_driver_that_cannot_be_opened_is_named(run):
    said = run(ASKED, **NOWHERE).splitlines()
    assert len(said) == 4 and said[3] == "[2.0, 2.0, 2.0]"
    assert all(
        "RABBET_CUDA_DRIVER names what cannot be opened: /nowhere" in line for line in said[:3]
    )
