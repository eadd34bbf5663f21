"""Which devices are meant where none, or only an index, is named."""

from . import _C, _plugins

Device = _C.device | str | int | None
_NOT_ACCELERATORS = ("meta", "cpu")


def accelerator_name() -> str | None:
    """The first backend besides the CPU's that was loaded, or else the first installed one that loads."""
    for backend in _C.backends():
        if backend["name"] not in _NOT_ACCELERATORS:
            return str(backend["name"])
    installed = {
        name
        for plugin in _plugins.plugins().values()
        if plugin.kind == "backend"
        for name in plugin.provides
    }
    for name in sorted(installed.difference(_NOT_ACCELERATORS)):
        try:
            _plugins.require_backend(name)
        except _C.PluginError:  # the doctor says why
            continue
        return name
    return None


def count_devices(name: str) -> int:
    """Number of devices of a backend, which is loaded if need be.

    Raises:
        PluginError: if there is none of this name.
    """
    if not any(b["name"] == name for b in _C.backends()):
        _plugins.require_backend(name)
    return next(int(b["devices"]) for b in _C.backends() if b["name"] == name)


def chosen_device(function: str, device: Device) -> _C.device:
    """The device of any backend that `function` was given; an index means the accelerator's.

    None is the accelerator's current device, and so is one of a backend without an index.

    Raises:
        DeviceError: if there is none.
        TypeError: for anything else.
    """
    if device is None or (isinstance(device, int) and not isinstance(device, bool)):
        name = accelerator_name()
        if name is None:
            raise _C.DeviceError(
                f"{function}: no accelerator is available; give a device, such as 'cpu'"
            )
        if device is not None and device < 0:
            raise _C.DeviceError(
                f"{function}: expected the index of a device, from 0 on, got {device}"
            )
        device = f"{name}:{_C.current_device(name) if device is None else device}"
    elif not isinstance(device, (str, _C.device)):
        raise TypeError(
            f"{function}: expected a device, its name or an index, got {type(device).__name__}"
        )
    asked = _C.device(device) if isinstance(device, str) else device
    count = count_devices(asked.type)
    index = _C.current_device(asked.type) if asked.index is None else asked.index
    if asked.type != "meta" and index >= count:
        raise _C.DeviceError(
            f"{function}: there is no device {asked.type}:{index}, '{asked.type}' has {count}"
        )
    if asked.index is None and asked.type not in _NOT_ACCELERATORS:
        return _C.device(asked.type, index)
    return asked
