#include "value_types.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <iterator>
#include <string>
#include <string_view>
#include <unordered_map>

#include "chosen_device.h"
#include "data.h"
#include "device/backends.h"
#include "device/current.h"
#include "device/generator.h"
#include "errors.h"
#include "named_dtypes.h"
#include "tensor/dtype.h"
#include "tensor_type.h"
#include "thread/deferral.h"

namespace rabbet::python {

PyTypeObject *dtype_type, *device_type, *size_type, *generator_type, *layout_type,
    *memory_format_type;
PyObject* strided_layout;
PyObject* layouts[RB_JAGGED + 1];
std::string shown_module = "rabbet";

namespace {

template <class T>
T* as(PyObject* o) {
  return reinterpret_cast<T*>(o);
}
void free_plain(PyObject* self) {  // an instance of a heap type holds its type
  PyTypeObject* type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}

// ---- dtype

PyObject* dtype_objects[RB_MAX_DTYPES];
int dtypes_named = 0;  // those that have objects

const DTypeInfo& info_of(PyObject* self) { return dtype_info(as<DTypeObject>(self)->id); }

PyObject* dtype_repr(PyObject* self) {
  return PyUnicode_FromFormat("%s.%s", shown_module.c_str(), info_of(self).name);
}
PyObject* dtype_name(PyObject* self, void*) { return PyUnicode_FromString(info_of(self).name); }
PyObject* dtype_itemsize(PyObject* self, void*) { return PyLong_FromLong(info_of(self).itemsize); }
PyObject* dtype_floating(PyObject* self, void*) {
  return PyBool_FromLong(holds_floats(as<DTypeObject>(self)->id));
}
PyObject* dtype_complex(PyObject* self, void*) {
  return PyBool_FromLong(info_of(self).category == kComplex);
}
PyObject* dtype_signed(PyObject* self, void*) {
  const int kind = info_of(self).kind;
  return PyBool_FromLong(kind != RB_CLASS_UINT && kind != RB_CLASS_BOOL);
}
PyObject* dtype_to_real(PyObject* self, PyObject*) {
  return Py_NewRef(dtype_object(to_real(as<DTypeObject>(self)->id)));
}
PyObject* dtype_to_complex(PyObject* self, PyObject*) {
  const int id = as<DTypeObject>(self)->id;
  return Py_NewRef(dtype_object(to_complex(id)));
}
// Pickled by name: `rabbet.float32`.
PyObject* dtype_reduce(PyObject* self, PyObject*) {
  return PyUnicode_FromString(info_of(self).name);
}

PyGetSetDef dtype_getset[] = {
    {"name", dtype_name, nullptr, "Name without the module.", nullptr},
    {"itemsize", dtype_itemsize, nullptr, "Bytes of an element.", nullptr},
    {"is_floating_point", dtype_floating, nullptr, "Whether a real float.", nullptr},
    {"is_complex", dtype_complex, nullptr, "Whether complex.", nullptr},
    {"is_signed", dtype_signed, nullptr, "Whether it holds negative values.", nullptr},
    {}};
PyMethodDef dtype_methods[] = {
    {"to_real", dtype_to_real, METH_NOARGS, "The real dtype of a complex one; others as they are."},
    {"to_complex", dtype_to_complex, METH_NOARGS, "The complex dtype of a real one."},
    {"__reduce__", dtype_reduce, METH_NOARGS, nullptr},
    {}};
PyType_Slot dtype_slots[] = {{Py_tp_repr, reinterpret_cast<void*>(dtype_repr)},
                             {Py_tp_getset, dtype_getset},
                             {Py_tp_methods, dtype_methods},
                             {Py_tp_dealloc, reinterpret_cast<void*>(free_plain)},
                             {Py_tp_doc, const_cast<char*>("Element type of a tensor.")},
                             {}};
PyType_Spec dtype_spec = {"rabbet.dtype", sizeof(DTypeObject), 0,
                          Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, dtype_slots};

// ---- device

// Types of devices that programs name whether or not there is a backend for them. While there is
// none, a device has -1 minus the position here as its backend, and using it is an error.
constexpr const char* kKnownTypes[] = {"cuda", "xpu", "mps",  "mtia", "hpu",   "xla",
                                       "hip",  "ipu", "maia", "lazy", "vulkan"};

const char* type_of(const DeviceObject* d) {
  return d->backend < 0 ? kKnownTypes[-1 - d->backend] : backend_name(d->backend);
}

bool has_plugin(const char* name) {
  const Ref plugins(must(PyImport_ImportModule("rabbet._plugins")));
  const Ref found(must(PyObject_CallMethod(plugins.get(), "has_backend", "s", name)));
  return found.get() == Py_True;
}

// The backend of a device object to be made: a negative number if nothing provides it.
int backend_or_known(const std::string& name) {
  const int id = find_backend(name.c_str());
  if (id >= 0) return id;
  const auto known = std::find(std::begin(kKnownTypes), std::end(kKnownTypes), name);
  if (known != std::end(kKnownTypes) && !has_plugin(name.c_str()))
    return -1 - static_cast<int>(known - std::begin(kKnownTypes));
  return require_backend(name.c_str());
}

std::string device_text(const DeviceObject* d) {
  std::string s = type_of(d);
  if (d->index >= 0) s += ":" + std::to_string(d->index);
  return s;
}
PyObject* device_str(PyObject* self) {
  return PyUnicode_FromString(device_text(as<DeviceObject>(self)).c_str());
}
PyObject* device_repr(PyObject* self) {
  const DeviceObject* d = as<DeviceObject>(self);
  if (d->index < 0) return PyUnicode_FromFormat("device(type='%s')", type_of(d));
  return PyUnicode_FromFormat("device(type='%s', index=%d)", type_of(d),
                              static_cast<int>(d->index));
}
PyObject* device_type_name(PyObject* self, void*) {
  return PyUnicode_FromString(type_of(as<DeviceObject>(self)));
}
PyObject* device_index(PyObject* self, void*) {
  const int index = as<DeviceObject>(self)->index;
  return index < 0 ? Py_NewRef(Py_None) : PyLong_FromLong(index);
}
PyObject* device_compare(PyObject* a, PyObject* b, int op) {
  if (!is_device(a) || !is_device(b) || (op != Py_EQ && op != Py_NE)) Py_RETURN_NOTIMPLEMENTED;
  const DeviceObject *x = as<DeviceObject>(a), *y = as<DeviceObject>(b);
  // Of two devices of a type one may have been made before there was a backend for it.
  const bool same = x->index == y->index &&
                    (x->backend == y->backend || std::strcmp(type_of(x), type_of(y)) == 0);
  return PyBool_FromLong(same == (op == Py_EQ));
}
Py_hash_t device_hash(PyObject* self) {
  const DeviceObject* d = as<DeviceObject>(self);
  const size_t type = std::hash<std::string_view>()(type_of(d));
  return static_cast<Py_hash_t>((type >> 2) * 1000003 + static_cast<size_t>(d->index + 1));
}
PyObject* device_reduce(PyObject* self, PyObject*) {
  return Py_BuildValue("O(s)", device_type, device_text(as<DeviceObject>(self)).c_str());
}
// The backend that `find` gives for the type, and the index.
template <class Find>
DeviceSpec device_of_text(PyObject* o, Find find) {
  const char* text = PyUnicode_AsUTF8(o);
  if (!text) throw PythonError{};
  const char* colon = std::strchr(text, ':');
  const std::string name = colon ? std::string(text, colon) : std::string(text);
  if (name.empty())
    raise(PyExc_RuntimeError, "device: expected a name such as 'cpu' or 'cuda:0', got %R", o);
  int32_t index = -1;
  if (colon) {
    const char* digits = colon + 1;
    if (!*digits || std::strspn(digits, "0123456789") != std::strlen(digits) ||
        std::strlen(digits) > 5 || (digits[0] == '0' && digits[1])) {
      raise(PyExc_RuntimeError, "device: expected a number behind ':', got %R", o);
    }
    index = static_cast<int32_t>(std::atoi(digits));
  }
  return {find(name), index};
}

// What device() makes of its first argument.
DeviceSpec new_device(PyObject* type) {
  if (PyUnicode_Check(type)) return device_of_text(type, backend_or_known);
  if (!is_device(type)) return parse_device(type);
  return {as<DeviceObject>(type)->backend, as<DeviceObject>(type)->index};
}
PyObject* device_new(PyTypeObject*, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"type", "index", nullptr};
  PyObject *type = nullptr, *index = nullptr;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|O:device", const_cast<char**>(names), &type,
                                   &index)) {
    return nullptr;
  }
  return object_boundary([&] {
    DeviceSpec spec = new_device(type);
    if (index && index != Py_None) {
      if (spec.index >= 0)
        raise(PyExc_RuntimeError, "device(): the index is given twice, in %R and as %R", type,
              index);
      const long i = PyLong_AsLong(index);
      if (i == -1 && PyErr_Occurred()) throw PythonError{};
      if (i < 0) raise(PyExc_RuntimeError, "device(): the index must not be negative, got %ld", i);
      spec.index = static_cast<int32_t>(i);
    }
    return must(make_device(spec.backend, spec.index));
  });
}
PyGetSetDef device_getset[] = {
    {"type", device_type_name, nullptr, "Name of the backend.", nullptr},
    {"index", device_index, nullptr, "Number of the device, or None.", nullptr},
    {}};
PyObject* device_enter(PyObject* self, PyObject*) {
  return object_boundary([&] {
    enter_device(self);
    return Py_NewRef(self);
  });
}
PyObject* device_exit(PyObject*, PyObject*) {
  return object_boundary([] {
    leave_device();
    return Py_NewRef(Py_None);
  });
}
// `@device`: a function whose calls run in the block.
PyObject* device_call(PyObject* self, PyObject* args, PyObject* kwargs) {
  return object_boundary([&] {
    static const char* names[] = {"func", nullptr};
    PyObject* function = nullptr;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O:device", const_cast<char**>(names),
                                     &function))
      throw PythonError{};
    const Ref module(must(PyImport_ImportModule("rabbet.utils._device")));
    return must(PyObject_CallMethod(module.get(), "device_decorator", "OO", self, function));
  });
}
PyMethodDef device_methods[] = {{"__reduce__", device_reduce, METH_NOARGS, nullptr},
                                {"__enter__", device_enter, METH_NOARGS, nullptr},
                                {"__exit__", device_exit, METH_VARARGS, nullptr},
                                {}};
PyType_Slot device_slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(device_new)},
    {Py_tp_repr, reinterpret_cast<void*>(device_repr)},
    {Py_tp_str, reinterpret_cast<void*>(device_str)},
    {Py_tp_hash, reinterpret_cast<void*>(device_hash)},
    {Py_tp_call, reinterpret_cast<void*>(device_call)},
    {Py_tp_richcompare, reinterpret_cast<void*>(device_compare)},
    {Py_tp_getset, device_getset},
    {Py_tp_methods, device_methods},
    {Py_tp_dealloc, reinterpret_cast<void*>(free_plain)},
    {Py_tp_doc,
     const_cast<char*>(
         "device(type, index=None): where a tensor's memory is, such as 'cpu' or 'cuda:0'.")},
    {}};
PyType_Spec device_spec = {"rabbet.device", sizeof(DeviceObject), 0, Py_TPFLAGS_DEFAULT,
                           device_slots};

// ---- Size

PyObject* size_from_tuple(PyObject* tuple) {  // steals
  if (!tuple || !PyTuple_CheckExact(tuple)) return tuple;
  Ref owned(tuple);
  const Py_ssize_t n = PyTuple_GET_SIZE(tuple);
  PyObject* size = size_type->tp_alloc(size_type, n);
  if (!size) return nullptr;
  for (Py_ssize_t i = 0; i < n; ++i)
    PyTuple_SET_ITEM(size, i, Py_NewRef(PyTuple_GET_ITEM(tuple, i)));
  return size;
}
PyObject* size_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  PyObject* size = PyTuple_Type.tp_new(type, args, kwargs);
  if (!size) return nullptr;
  Ref owned(size);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(size); ++i) {
    PyObject* const item = PyTuple_GET_ITEM(size, i);
    if (PyLong_Check(item)) continue;
    if (!PyIndex_Check(item)) {
      PyErr_Format(PyExc_TypeError, "Size(): element %zd must be int, not %s", i,
                   Py_TYPE(item)->tp_name);
      return nullptr;
    }
    PyObject* const number = PyNumber_Index(item);
    if (!number) return nullptr;
    PyTuple_SET_ITEM(size, i, number);
    Py_DECREF(item);
  }
  return owned.release();
}
PyObject* size_repr(PyObject* self) {
  Ref list(PySequence_List(self));
  return list ? PyUnicode_FromFormat("%s.Size(%R)", shown_module.c_str(), list.get()) : nullptr;
}
PyObject* size_numel(PyObject* self, PyObject*) {
  Ref product(PyLong_FromLong(1));
  for (Py_ssize_t i = 0; product && i < PyTuple_GET_SIZE(self); ++i) {
    product = Ref(PyNumber_Multiply(product.get(), PyTuple_GET_ITEM(self, i)));
  }
  return product.release();
}
PyObject* size_subscript(PyObject* self, PyObject* key) {
  return size_from_tuple(PyTuple_Type.tp_as_mapping->mp_subscript(self, key));
}
PyObject* size_concat(PyObject* self, PyObject* other) {
  return size_from_tuple(PyTuple_Type.tp_as_sequence->sq_concat(self, other));
}
PyObject* size_repeat(PyObject* self, Py_ssize_t n) {
  return size_from_tuple(PyTuple_Type.tp_as_sequence->sq_repeat(self, n));
}
PyObject* size_reduce(PyObject* self, PyObject*) {
  Ref tuple(PyTuple_GetSlice(self, 0, PyTuple_GET_SIZE(self)));
  Ref list(PySequence_List(self));
  return list ? Py_BuildValue("O(O)", size_type, list.get()) : nullptr;
}
PyMethodDef size_methods[] = {{"numel", size_numel, METH_NOARGS, "Product of the sizes."},
                              {"__reduce__", size_reduce, METH_NOARGS, nullptr},
                              {}};
PyType_Slot size_slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(size_new)},
    {Py_tp_repr, reinterpret_cast<void*>(size_repr)},
    {Py_mp_subscript, reinterpret_cast<void*>(size_subscript)},
    {Py_sq_concat, reinterpret_cast<void*>(size_concat)},
    {Py_sq_repeat, reinterpret_cast<void*>(size_repeat)},
    {Py_tp_methods, size_methods},
    {Py_tp_doc, const_cast<char*>("Sizes of a tensor's dimensions, a tuple of ints.")},
    {}};
PyType_Spec size_spec = {"rabbet.Size", 0, 0, Py_TPFLAGS_DEFAULT, size_slots};

// ---- Generator

constexpr uint64_t kInitialSeed = 5489;

// Objects that own a generator's state, borrowed; guarded by Python's lock.
std::unordered_map<const RbGenerator*, PyObject*>& generator_owners() {
  static std::unordered_map<const RbGenerator*, PyObject*> owners;
  return owners;
}

PyObject* generator_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"device", nullptr};
  PyObject* device = nullptr;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O:Generator", const_cast<char**>(names),
                                   &device))
    return nullptr;
  return object_boundary([&] {
    const DeviceSpec spec =
        device && device != Py_None ? parse_device(device) : DeviceSpec{default_backend(), -1};
    PyObject* self = must(type->tp_alloc(type, 0));
    GeneratorObject* g = as<GeneratorObject>(self);
    g->state = new RbGenerator;
    g->state->seed = kInitialSeed;
    g->owned = true;
    generator_owners()[g->state] = self;
    g->backend = spec.backend;
    const bool plain = spec.backend == kMeta || has_host_memory(spec.backend);
    g->index = plain ? spec.index : index_or_current(spec.backend, spec.index);
    return self;
  });
}
void generator_free(PyObject* self) {
  if (as<GeneratorObject>(self)->owned) {
    generator_owners().erase(as<GeneratorObject>(self)->state);
    delete as<GeneratorObject>(self)->state;
  }
  free_plain(self);
}
// The state of the generator, which `what` is about to read or to set.
RbGenerator& generator_state(PyObject* self, const char* what) {
  RbGenerator* const state = as<GeneratorObject>(self)->state;
  ask_generator_gates(state, what);
  return *state;
}
void set_generator_state(PyObject* self, uint64_t seed, uint64_t offset, const char* what) {
  RbGenerator& state = generator_state(self, what);
  state.seed = seed;
  state.offset = offset;
}
PyObject* generator_manual_seed(PyObject* self, PyObject* seed) {
  // Negative seeds are taken modulo 2**64, as PyTorch does.
  Ref number(PyNumber_Index(seed));
  if (!number) return nullptr;
  const unsigned long long value = PyLong_AsUnsignedLongLongMask(number.get());
  if (value == static_cast<unsigned long long>(-1) && PyErr_Occurred()) return nullptr;
  return object_boundary([&] {
    set_generator_state(self, value, 0, "Generator.manual_seed");
    return Py_NewRef(self);
  });
}
PyObject* generator_initial_seed(PyObject* self, PyObject*) {
  return object_boundary([&] {
    return PyLong_FromUnsignedLongLong(generator_state(self, "Generator.initial_seed").seed.load());
  });
}
PyObject* generator_seed(PyObject* self, PyObject*) {
  Ref os(PyImport_ImportModule("os"));
  if (!os) return nullptr;
  Ref bytes(PyObject_CallMethod(os.get(), "urandom", "i", 8));
  if (!bytes) return nullptr;
  uint64_t seed = 0;
  std::memcpy(&seed, PyBytes_AsString(bytes.get()), sizeof seed);
  seed >>= 11;  // exact as a double, so that it survives JSON
  return object_boundary([&] {
    set_generator_state(self, seed, 0, "Generator.seed");
    return PyLong_FromUnsignedLongLong(seed);
  });
}
PyObject* generator_get_state(PyObject* self, PyObject*) {
  return object_boundary([&] {
    const RbGenerator& g = generator_state(self, "Generator.get_state");
    const uint64_t words[2] = {g.seed.load(), g.offset.load()};
    const int64_t n = sizeof words;
    Tensor* t = tensor_new(require_backend("cpu"), 0, RB_U8, 1, &n, nullptr);
    std::memcpy(t->data, words, sizeof words);
    return wrap(t);
  });
}
PyObject* generator_set_state(PyObject* self, PyObject* state) {
  uint64_t words[2];
  const Tensor* t = is_tensor(state) ? tensor_of(state) : nullptr;
  if (!t || t->dtype_id != RB_U8 || t->numel != sizeof words || !(t->flags & RB_T_CONTIGUOUS) ||
      !t->data || !has_host_memory(t->backend)) {
    PyErr_SetString(
        PyExc_TypeError,
        "Generator.set_state: expected the uint8 tensor of 16 elements that get_state returned");
    return nullptr;
  }
  return object_boundary([&] {
    make_ready(t, "Generator.set_state");
    std::memcpy(words, t->data, sizeof words);
    set_generator_state(self, words[0], words[1], "Generator.set_state");
    return Py_NewRef(self);
  });
}
PyObject* generator_device(PyObject* self, void*) {
  return make_device(as<GeneratorObject>(self)->backend, as<GeneratorObject>(self)->index);
}
PyObject* generator_reduce(PyObject* self, PyObject*) {
  return object_boundary([&] {
    const RbGenerator& g = generator_state(self, "Generator.__reduce__");
    Ref device(must(generator_device(self, nullptr)));
    return must(Py_BuildValue("O(O)(KK)", Py_TYPE(self), device.get(),
                              static_cast<unsigned long long>(g.seed.load()),
                              static_cast<unsigned long long>(g.offset.load())));
  });
}
PyObject* generator_setstate(PyObject* self, PyObject* state) {
  unsigned long long seed, offset;
  if (!PyArg_ParseTuple(state, "KK:__setstate__", &seed, &offset)) return nullptr;
  return object_boundary([&] {
    set_generator_state(self, seed, offset, "Generator.__setstate__");
    return Py_NewRef(Py_None);
  });
}
PyMethodDef generator_methods[] = {
    {"manual_seed", generator_manual_seed, METH_O,
     "Set the seed and start its sequence afresh; returns self."},
    {"initial_seed", generator_initial_seed, METH_NOARGS, "The seed in use."},
    {"seed", generator_seed, METH_NOARGS, "Take a seed from the operating system and return it."},
    {"get_state", generator_get_state, METH_NOARGS, "Seed and position as a uint8 tensor."},
    {"set_state", generator_set_state, METH_O, "Go back to a state that get_state returned."},
    {"__reduce__", generator_reduce, METH_NOARGS, nullptr},
    {"__setstate__", generator_setstate, METH_O, nullptr},
    {}};
PyGetSetDef generator_getset[] = {
    {"device", generator_device, nullptr, "Device that it serves.", nullptr}, {}};
PyType_Slot generator_slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(generator_new)},
    {Py_tp_dealloc, reinterpret_cast<void*>(generator_free)},
    {Py_tp_methods, generator_methods},
    {Py_tp_getset, generator_getset},
    {Py_tp_doc,
     const_cast<char*>(
         "Generator(device='cpu'): state of a random number sequence (Philox-4x32-10).")},
    {}};
PyType_Spec generator_spec = {"rabbet.Generator", sizeof(GeneratorObject), 0, Py_TPFLAGS_DEFAULT,
                              generator_slots};

// ---- layout, memory_format

PyObject* constant_repr(PyObject* self) {
  return PyUnicode_FromFormat("%s.%s", shown_module.c_str(), as<ConstantObject>(self)->name);
}
PyObject* constant_reduce(PyObject* self, PyObject*) {
  return PyUnicode_FromString(as<ConstantObject>(self)->name);
}
PyMethodDef constant_methods[] = {{"__reduce__", constant_reduce, METH_NOARGS, nullptr}, {}};
PyType_Slot constant_slots[] = {{Py_tp_repr, reinterpret_cast<void*>(constant_repr)},
                                {Py_tp_methods, constant_methods},
                                {Py_tp_dealloc, reinterpret_cast<void*>(free_plain)},
                                {}};
PyType_Spec layout_spec = {"rabbet.layout", sizeof(ConstantObject), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, constant_slots};
PyType_Spec memory_format_spec = {"rabbet.memory_format", sizeof(ConstantObject), 0,
                                  Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                                  constant_slots};

bool add_constant(PyObject* module, PyTypeObject* type, const char* name, int value,
                  PyObject** out = nullptr) {
  PyObject* o = type->tp_alloc(type, 0);
  if (!o) return false;
  as<ConstantObject>(o)->name = name;
  as<ConstantObject>(o)->value = value;
  if (out) *out = Py_NewRef(o);
  Ref owned(o);
  return PyModule_AddObjectRef(module, name, o) == 0;
}

PyTypeObject* add_type(PyObject* module, PyType_Spec* spec, PyObject* base = nullptr) {
  PyObject* type = PyType_FromSpecWithBases(spec, base);
  if (!type || PyModule_AddObjectRef(module, std::strrchr(spec->name, '.') + 1, type) < 0)
    return nullptr;
  return as<PyTypeObject>(type);
}

}  // namespace

namespace {
bool name_dtypes(PyObject* module, PyObject* package) {
  for (; dtypes_named < dtype_count(); ++dtypes_named) {
    PyObject* o = dtype_type->tp_alloc(dtype_type, 0);
    if (!o) return false;
    as<DTypeObject>(o)->id = dtypes_named;
    dtype_objects[dtypes_named] = o;
    const char* name = dtype_info(dtypes_named).name;
    if (*name && PyObject_SetAttrString(module, name, o) < 0) return false;
    if (package && *name && PyObject_SetAttrString(package, name, o) < 0) return false;
  }
  return true;
}
}  // namespace

PyObject* dtype_object(int id) { return dtype_objects[id]; }

void refresh_dtypes() {
  if (dtypes_named == dtype_count()) return;
  const Ref module(must(PyImport_ImportModule("rabbet._C")));
  const Ref package(must(PyImport_ImportModule("rabbet")));
  if (!name_dtypes(module.get(), package.get())) throw PythonError{};
}

bool init_value_types(PyObject* module) {
  dtype_type = add_type(module, &dtype_spec);
  device_type = add_type(module, &device_spec);
  size_type =
      add_type(module, &size_spec, as<PyObject>(reinterpret_cast<PyObject*>(&PyTuple_Type)));
  generator_type = add_type(module, &generator_spec);
  layout_type = add_type(module, &layout_spec);
  memory_format_type = add_type(module, &memory_format_spec);
  if (!dtype_type || !device_type || !size_type || !generator_type || !layout_type ||
      !memory_format_type)
    return false;
  if (!name_dtypes(module, nullptr)) return false;
  for (int f = 0; f < kMemoryFormats; ++f) {
    if (!add_constant(module, memory_format_type, memory_format_name(static_cast<MemoryFormat>(f)),
                      f))
      return false;
  }
  int value = RB_STRIDED;
  for (const char* name : {"strided", "sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr",
                           "sparse_bsc", "jagged"}) {
    if (!add_constant(module, layout_type, name, value, &layouts[value])) return false;
    ++value;
  }
  strided_layout = layouts[RB_STRIDED];
  return true;
}

int layout_of(PyObject* o) { return Py_TYPE(o) == layout_type ? as<ConstantObject>(o)->value : -1; }

MemoryFormat memory_format_of(PyObject* o, MemoryFormat absent, const char* method) {
  if (o == Py_None) return absent;
  if (Py_TYPE(o) != memory_format_type) {
    raise(PyExc_TypeError, "%s(): argument 'memory_format' must be rabbet.memory_format, not %s",
          method, Py_TYPE(o)->tp_name);
  }
  return static_cast<MemoryFormat>(as<ConstantObject>(o)->value);
}

int dtype_of(PyObject* o) {
  if (is_dtype(o)) return as<DTypeObject>(o)->id;
  if (o == as<PyObject>(reinterpret_cast<PyObject*>(&PyBool_Type))) return RB_BOOL8;
  if (o == reinterpret_cast<PyObject*>(&PyLong_Type)) return RB_I64;
  if (o == reinterpret_cast<PyObject*>(&PyFloat_Type)) return RB_F64;
  if (o == reinterpret_cast<PyObject*>(&PyComplex_Type)) return RB_C128;
  return -1;
}

PyObject* make_device(int backend, int index) {
  PyObject* o = device_type->tp_alloc(device_type, 0);
  if (!o) return nullptr;
  as<DeviceObject>(o)->backend = backend;
  as<DeviceObject>(o)->index = index;
  return o;
}

PyObject* device_of(const RbTensor* t) {
  const bool plain = t->backend == kMeta || has_host_memory(t->backend);
  return make_device(t->backend, plain ? -1 : t->device.id);
}

bool looks_like_device(PyObject* o) {
  return is_device(o) || PyUnicode_Check(o) || (PyLong_Check(o) && !PyBool_Check(o));
}

DeviceSpec parse_device(PyObject* o) {
  if (is_device(o)) {
    const DeviceObject* d = as<DeviceObject>(o);
    return {d->backend < 0 ? require_backend(type_of(d)) : d->backend, d->index};
  }
  if (PyLong_Check(o) && !PyBool_Check(o)) {  // as PyTorch: an index of the accelerator
    const long index = PyLong_AsLong(o);
    if (index == -1 && PyErr_Occurred()) throw PythonError{};
    if (index < 0)
      raise(PyExc_RuntimeError, "device: the index must not be negative, got %ld", index);
    return {require_backend("cuda"), static_cast<int32_t>(index)};
  }
  if (!PyUnicode_Check(o))
    raise(PyExc_TypeError, "device must be a str, a device or an int, not %s", Py_TYPE(o)->tp_name);
  return device_of_text(o, [](const std::string& name) { return require_backend(name.c_str()); });
}

DeviceSpec device_argument(PyObject* o) {
  DeviceSpec spec = parse_device(o);
  spec.index = index_or_current(spec.backend, spec.index);
  check_device(spec.backend, spec.index);
  return spec;
}

PyObject* make_size(int ndim, const int64_t* shape) {
  PyObject* size = size_type->tp_alloc(size_type, ndim);
  if (!size) return nullptr;
  for (int i = 0; i < ndim; ++i) {
    PyObject* n = PyLong_FromLongLong(shape[i]);
    if (!n) {
      Py_DECREF(size);
      return nullptr;
    }
    PyTuple_SET_ITEM(size, i, n);
  }
  return size;
}

PyObject* make_default_generator(int backend, int index) {
  PyObject* o = generator_type->tp_alloc(generator_type, 0);
  if (!o) return nullptr;
  GeneratorObject* g = as<GeneratorObject>(o);
  g->state = &default_generator(backend, index_or_current(backend, index));
  g->owned = false;
  g->backend = backend;
  g->index = index;
  return o;
}

PyObject* generator_object(RbGenerator* state) {
  const auto owner = generator_owners().find(state);
  if (owner != generator_owners().end()) return Py_NewRef(owner->second);
  PyObject* o = generator_type->tp_alloc(generator_type, 0);
  if (!o) return nullptr;
  auto* g = reinterpret_cast<GeneratorObject*>(o);
  g->state = state;
  g->owned = false;
  g->backend = kMeta;
  g->index = -1;
  return o;
}

}  // namespace rabbet::python
