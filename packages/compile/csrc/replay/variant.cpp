#include "replay/variant.h"

#include <algorithm>
#include <cstring>

#include "rabbet/python.hpp"

namespace replay {

namespace {

PyObject* part(PyObject* tuple, Py_ssize_t i) {
  PyObject* found =
      PyTuple_Check(tuple) && i < PyTuple_GET_SIZE(tuple) ? PyTuple_GET_ITEM(tuple, i) : nullptr;
  if (found) return found;
  PyErr_Format(PyExc_TypeError, "Variant: expected a tuple with a part %zd", i);
  give_up();
}

template <class Visit>
void each(PyObject* list, Visit&& visit) {
  if (!PyList_Check(list)) {
    PyErr_SetString(PyExc_TypeError, "Variant: expected a list");
    give_up();
  }
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); ++i) visit(PyList_GET_ITEM(list, i));
}

}  // namespace

// ---- trees

Tree::Tree(PyObject* spec) : kind_(static_cast<Kind>(as_number(part(spec, 0)))) {
  switch (kind_) {
    case kTensor:
    case kArgument:
    case kNumber:
      number_ = static_cast<size_t>(as_number(part(spec, 1)));
      return;
    case kObject:
      object_ = Ref::share(part(spec, 1));
      return;
    case kDict:
      object_ = Ref::share(part(spec, 2));
      [[fallthrough]];
    case kList:
    case kTuple:
      each(part(spec, 1), [this](PyObject* item) { parts_.emplace_back(item); });
      return;
  }
  PyErr_SetString(PyExc_ValueError, "Variant: unknown kind of a tree");
  give_up();
}

bool Tree::match(PyObject* object, std::vector<PyObject*>& tensors) const {
  const auto n = static_cast<Py_ssize_t>(parts_.size());
  switch (kind_) {
    case kTensor:
      tensors.push_back(object);
      return core->unwrap(object) != nullptr;
    case kObject:
      return same(object, object_.get());
    case kList:
    case kTuple: {
      const PyTypeObject* type = kind_ == kList ? &PyList_Type : &PyTuple_Type;
      if (Py_TYPE(object) != type || PySequence_Fast_GET_SIZE(object) != n) return false;
      PyObject* const* items = PySequence_Fast_ITEMS(object);
      for (Py_ssize_t i = 0; i < n; ++i)
        if (!parts_[i].match(items[i], tensors)) return false;
      return true;
    }
    case kDict: {
      if (!PyDict_CheckExact(object) || PyDict_GET_SIZE(object) != n) return false;
      PyObject *key, *value;
      Py_ssize_t at = 0, i = 0;
      for (; PyDict_Next(object, &at, &key, &value); ++i)
        if (!same(key, PyTuple_GET_ITEM(object_.get(), i)) || !parts_[i].match(value, tensors))
          return false;
      return true;
    }
    default:
      return false;
  }
}

PyObject* Tree::build(const Made& made) const {
  switch (kind_) {
    case kTensor:
      return Py_NewRef(made.tensors[number_].get());
    case kArgument:
      return Py_NewRef(made.arguments[number_]);
    case kNumber:
      return Py_NewRef(made.numbers[number_].get());
    case kObject:
      return Py_NewRef(object_.get());
    case kDict: {
      Ref dict = Ref::take(PyDict_New());
      for (size_t i = 0; dict && i < parts_.size(); ++i) {
        const Ref item = Ref::take(parts_[i].build(made));
        PyObject* key = PyTuple_GET_ITEM(object_.get(), static_cast<Py_ssize_t>(i));
        if (!item || PyDict_SetItem(dict.get(), key, item.get()) < 0) return nullptr;
      }
      return dict.release();
    }
    default:
      break;
  }
  const auto n = static_cast<Py_ssize_t>(parts_.size());
  Ref list = Ref::take(kind_ == kList ? PyList_New(n) : PyTuple_New(n));
  for (Py_ssize_t i = 0; list && i < n; ++i) {
    PyObject* item = parts_[i].build(made);
    if (!item) return nullptr;
    if (kind_ == kList)
      PyList_SET_ITEM(list.get(), i, item);
    else
      PyTuple_SET_ITEM(list.get(), i, item);
  }
  return list.release();
}

int Tree::traverse(visitproc visit, void* arg) const {
  Py_VISIT(object_.get());
  for (const Tree& tree : parts_)
    if (const int rc = tree.traverse(visit, arg)) return rc;
  return 0;
}

// ---- variants

Variant::Variant(PyObject* spec, Py_ssize_t number_of_this)
    : number_(number_of_this),
      arguments_(part(spec, 0)),
      guards_(part(spec, 1)),
      numbers_(part(spec, 15)),
      program_(Ref::share(part(spec, 5))),
      handle_(nullptr),
      outputs_(part(spec, 6)),
      noutputs_(static_cast<size_t>(as_number(part(spec, 9)))),
      repeatable_(static_cast<int32_t>(as_number(part(spec, 10)))),
      in_region_(part(spec, 11) == Py_True),
      needs_distinct_(part(spec, 12) == Py_True) {
  each(part(spec, 2), [this](PyObject* tensor) { signatures_.emplace_back(tensor); });
  each(part(spec, 3),
       [this](PyObject* at) { same_as_.push_back(static_cast<size_t>(as_number(at))); });
  each(part(spec, 4), [this](PyObject* tensor) { states_.push_back(Ref::share(tensor)); });
  each(part(spec, 7), [this](PyObject* effect) {
    const bool removes = part(effect, 2) == missing;
    static PyObject* const none = Py_BuildValue("(iO)", int(Tree::kObject), Py_None);
    effects_.push_back({Ref::share(part(effect, 0)), Ref::share(part(effect, 1)), removes,
                        Tree(removes ? none : part(effect, 2))});
  });
  each(part(spec, 8), [this](PyObject* gradient) {
    gradients_.push_back(
        {static_cast<size_t>(as_number(part(gradient, 0))), as_number(part(gradient, 1))});
  });
  each(part(spec, 17),
       [this](PyObject* at) { saved_.push_back(static_cast<size_t>(as_number(at))); });
  each(part(spec, 16),
       [this](PyObject* at) { given_.push_back(static_cast<size_t>(as_number(at))); });
  each(part(spec, 14), [this](PyObject* tensor) { others_.push_back(Ref::share(tensor)); });
  if (part(spec, 13) != Py_None) generator_ = Ref::share(part(spec, 13));
  const Ref handle = Ref::take(PyObject_GetAttrString(program_.get(), "handle"));
  if (!handle) give_up();
  handle_ =
      static_cast<const RbProgram*>(PyCapsule_GetPointer(handle.get(), "rabbet.graph.program"));
  if (!handle_) give_up();
}

int Variant::traverse(visitproc visit, void* arg) const {
  if (const int rc = arguments_.traverse(visit, arg)) return rc;
  if (const int rc = guards_.traverse(visit, arg)) return rc;
  if (const int rc = outputs_.traverse(visit, arg)) return rc;
  if (const int rc = numbers_.traverse(visit, arg)) return rc;
  for (const Ref& state : states_) Py_VISIT(state.get());
  for (const Ref& other : others_) Py_VISIT(other.get());
  for (const Effect& effect : effects_) {
    Py_VISIT(effect.dict.get());
    Py_VISIT(effect.key.get());
    if (const int rc = effect.value.traverse(visit, arg)) return rc;
  }
  Py_VISIT(program_.get());
  return 0;
}

bool Variant::fits(const std::vector<PyObject*>& tensors) const {
  if (tensors.size() != signatures_.size()) return false;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!signatures_[i].fits(tensors[i])) return false;
    size_t first = 0;
    while (tensors[first] != tensors[i]) ++first;
    if (first != same_as_[i]) return false;
    for (const Ref& other : others_)
      if (other.get() == tensors[i]) return false;
  }
  return true;
}

namespace {

// Whether no two of the inputs share memory.
bool distinct(const std::vector<RbTensor*>& inputs) {
  std::vector<const void*> places;
  places.reserve(inputs.size());
  for (RbTensor* t : inputs) {
    RbMemory memory{};
    memory.struct_size = RB_SIZE(RbMemory, nbytes);
    if (t->numel && trace->memory_get(t, &memory) == RB_OK) places.push_back(memory.data);
  }
  std::sort(places.begin(), places.end());
  return std::adjacent_find(places.begin(), places.end()) == places.end();
}

}  // namespace

Outcome Variant::call(PyObject* args, PyObject* kwargs) {
  failed_ = -1;
  std::vector<PyObject*> tensors;
  const Ref both = Ref::take(PyTuple_Pack(2, args, kwargs ? kwargs : Py_None));
  if (!both) return {Outcome::kRaised, {}};
  if (!arguments_.match(both.get(), tensors) || !fits(tensors)) return {Outcome::kMismatch, {}};
  const int held = guards_.check(failed_);
  if (held < 0) return {Outcome::kRaised, {}};
  if (!held) return {Outcome::kMismatch, {}};
  return run(tensors);
}

namespace {

// Copies of the memory of dense tensors on the CPU.
class Saved {
 public:
  bool add(RbTensor* t) {
    if (!(t->flags & RB_T_CONTIGUOUS)) return false;
    if (trace->ready(t, "a copy for replay") != RB_OK) {
      core->host->err_clear();
      return false;
    }
    RbDTypeInfo info{};
    info.struct_size = sizeof info;
    core->host->dtype_info(t->dtype_id, &info);
    const auto* data = static_cast<const char*>(t->data);
    copies_.push_back({t, {data, data + static_cast<size_t>(t->numel) * info.itemsize}});
    return true;
  }
  void put_back() const {
    for (const Copy& copy : copies_)
      if (!copy.bytes.empty()) std::memcpy(copy.tensor->data, copy.bytes.data(), copy.bytes.size());
  }

 private:
  struct Copy {
    RbTensor* tensor;
    std::vector<char> bytes;
  };
  std::vector<Copy> copies_;
};

}  // namespace

// The numbers as operators take them.
bool Variant::give_numbers(const std::vector<Ref>& numbers, std::vector<RbValue>& given) const {
  for (const size_t at : given_) {
    PyObject* number = numbers[at].get();
    RbValue value{};
    if (PyFloat_CheckExact(number)) {
      value.tag = RB_FLOAT;
      value.v.f = PyFloat_AS_DOUBLE(number);
    } else {
      int overflow = 0;
      value.tag = RB_INT;
      value.v.i = PyLong_AsLongLongAndOverflow(number, &overflow);
      if (overflow) return false;
    }
    given.push_back(value);
  }
  return true;
}

Outcome Variant::run(const std::vector<PyObject*>& arguments) {
  Made made{arguments, {}, {}};
  std::vector<RbValue> given;
  if (!numbers_.compute(made.numbers) || !give_numbers(made.numbers, given))
    return {Outcome::kMismatch, {}};
  std::vector<RbTensor*> inputs;
  for (size_t i = 0; i < arguments.size(); ++i)
    if (same_as_[i] == i) inputs.push_back(core->unwrap(arguments[i]));
  for (const Ref& state : states_) inputs.push_back(core->unwrap(state.get()));
  if (needs_distinct_ && !distinct(inputs)) return {Outcome::kMismatch, {}};
  Saved saved;
  for (const size_t at : saved_)
    if (!saved.add(inputs[at])) return {Outcome::kMismatch, {}};
  Ref random;
  if (generator_) {
    random = Ref::take(PyObject_CallMethod(generator_.get(), "get_state", nullptr));
    if (!random) return {Outcome::kRaised, {}};
  }
  std::vector<RbTensor*> outputs(noutputs_);
  int32_t failed = -1, code = RB_OK;
  const bool enters = in_region_ && !regions->is_on();
  {
    const rb::WithoutGil unlocked;
    if (enters) code = regions->set_on(1, nullptr);
    if (code == RB_OK)
      code =
          programs()->program_run_with(handle_, inputs.data(), static_cast<uint32_t>(inputs.size()),
                                       given.data(), static_cast<uint32_t>(given.size()),
                                       outputs.data(), static_cast<uint32_t>(noutputs_), &failed);
    if (enters) {
      const int32_t left = regions->set_on(0, nullptr);
      if (code == RB_OK) code = left;
    }
  }
  for (RbTensor* output : outputs)
    if (output) made.tensors.push_back(Ref::take(core->wrap(output)));  // takes over the reference
  if (code != RB_OK) {
    core->raise_error(code);
    if (failed < 0 || failed >= repeatable_) return {Outcome::kRaised, {}};
    PyErr_Clear();
    saved.put_back();
    if (random && !Ref::take(PyObject_CallMethod(generator_.get(), "set_state", "O", random.get())))
      return {Outcome::kRaised, {}};
    return {Outcome::kFailed, {}};
  }
  for (const Ref& tensor : made.tensors)
    if (!tensor) return {Outcome::kRaised, {}};
  if (finish(made) < 0) return {Outcome::kRaised, {}};
  ++runs_;
  Ref result = Ref::take(outputs_.build(made));
  return {result ? Outcome::kDone : Outcome::kRaised, std::move(result)};
}

// What the program does besides writing memory.
int Variant::finish(const Made& made) {
  const std::vector<PyObject*>& arguments = made.arguments;
  static PyObject* const grad = PyUnicode_InternFromString("grad");
  for (const Gradient& gradient : gradients_) {
    PyObject* tensor = gradient.input < arguments.size()
                           ? arguments[gradient.input]
                           : states_[gradient.input - arguments.size()].get();
    PyObject* value = gradient.output < 0 ? Py_None : made.tensors[gradient.output].get();
    if (PyObject_SetAttr(tensor, grad, value) < 0) return -1;
  }
  for (const Effect& effect : effects_) {
    if (effect.removes) {
      if (PyDict_DelItem(effect.dict.get(), effect.key.get()) < 0) return -1;
      continue;
    }
    const Ref value = Ref::take(effect.value.build(made));
    if (!value || PyDict_SetItem(effect.dict.get(), effect.key.get(), value.get()) < 0) return -1;
  }
  return 0;
}

}  // namespace replay
