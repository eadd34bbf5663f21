// rabbet.graph._C: programs for Python, and the table "rabbet.graph".
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <string>
#include <utility>
#include <vector>

#include "program.h"
#include "rabbet/plugin.hpp"
#include "rabbet/python.h"
#include "rabbet/python.hpp"

namespace py = pybind11;

namespace {

const RbPython* core = nullptr;

// ---- the table

int32_t program_new(uint32_t ninputs, uint32_t nslots, RbProgram** out) {
  return rb::guarded([&] {
    if (!out) rb::fail(RB_E_ARG, "program_new: the place for the program is null");
    *out = new RbProgram(ninputs, nslots);
  });
}
int32_t program_add(RbProgram* program, const RbStep* step) {
  return rb::guarded([&] {
    if (!program || !step || step->struct_size < RB_SIZE(RbStep, exclude))
      rb::fail(RB_E_ARG, "program_add: the program or the step is null or too short");
    program->add(*step);
  });
}
int32_t program_finish(RbProgram* program, const uint32_t* slots, uint32_t n) {
  return rb::guarded([&] {
    if (!program) rb::fail(RB_E_ARG, "program_finish: the program is null");
    program->finish(slots, n);
  });
}
int32_t program_run_with(const RbProgram* program, RbTensor* const* inputs, uint32_t ninputs,
                         const RbValue* numbers, uint32_t nnumbers, RbTensor** outputs,
                         uint32_t noutputs, int32_t* failed) {
  int32_t at = -1;
  const int32_t code = rb::guarded([&] {
    if (!program || (ninputs && !inputs) || (nnumbers && !numbers) || (noutputs && !outputs))
      rb::fail(RB_E_ARG, "program_run: the program, the inputs or the outputs are null");
    program->run(inputs, ninputs, numbers, nnumbers, outputs, noutputs, at);
  });
  if (failed) *failed = at;
  return code;
}
int32_t program_run(const RbProgram* program, RbTensor* const* inputs, uint32_t ninputs,
                    RbTensor** outputs, uint32_t noutputs, int32_t* failed) {
  return program_run_with(program, inputs, ninputs, nullptr, 0, outputs, noutputs, failed);
}
void program_free(RbProgram* program) { delete program; }

const RbGraph table = {sizeof(RbGraph), 0,           program_new,  program_add,
                       program_finish,  program_run, program_free, program_run_with};

// ---- the Python class

void check(int32_t code) {
  if (code == RB_OK) return;
  core->raise_error(code);
  throw py::error_already_set();
}

class Program {
 public:
  Program(uint32_t ninputs, uint32_t nslots) { check(program_new(ninputs, nslots, &program_)); }
  ~Program() { program_free(program_); }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  void add(const std::string& op, const py::tuple& args,
           const std::vector<std::tuple<int32_t, int32_t, uint32_t>>& places,
           const std::vector<uint32_t>& outs, const std::vector<uint32_t>& results,
           bool returns_list, const std::vector<uint32_t>& last, uint64_t exclude,
           const std::vector<std::pair<int32_t, uint32_t>>& numbers) {
    std::vector<RbNumberPlace> given;
    for (const auto& [arg, number] : numbers) given.push_back({arg, number});
    std::vector<RbPlace> tensors;
    for (const auto& [arg, item, slot] : places) tensors.push_back({arg, item, slot});
    RbStep step{};
    step.struct_size = sizeof step;
    step.flags = returns_list ? RB_STEP_LIST : 0;
    step.nplaces = static_cast<int32_t>(tensors.size());
    step.places = tensors.data();
    step.nouts = static_cast<int32_t>(outs.size());
    step.outs = outs.data();
    step.nresults = static_cast<int32_t>(results.size());
    step.results = results.data();
    step.nlast = static_cast<int32_t>(last.size());
    step.last = last.data();
    step.exclude = exclude;
    step.nnumbers = static_cast<int32_t>(given.size());
    step.numbers = given.data();
    using Context = std::pair<RbProgram*, RbStep*>;
    Context context{program_, &step};
    const auto use = [](void* ctx, const RbOp* op, const RbValue* values, int32_t n) {
      auto* c = static_cast<Context*>(ctx);
      c->second->op = op;
      c->second->args = values;
      c->second->nargs = n;
      return program_add(c->first, c->second);
    };
    if (core->use_arguments(op.c_str(), args.ptr(), use, &context) < 0)
      throw py::error_already_set();
    arguments_.append(args);  // generators and Python objects live as long as the program
  }

  void finish(const std::vector<uint32_t>& slots) {
    check(program_finish(program_, slots.data(), static_cast<uint32_t>(slots.size())));
    noutputs_ = slots.size();
  }

  py::list run(const py::sequence& inputs, const py::sequence& numbers) {
    const py::list kept(inputs);
    const std::vector<RbValue> given = values_of(numbers);
    std::vector<RbTensor*> tensors;
    for (const py::handle input : kept) {
      tensors.push_back(core->unwrap(input.ptr()));
      if (!tensors.back())
        throw py::type_error("Program.run: expected tensors, got " +
                             std::string(Py_TYPE(input.ptr())->tp_name));
    }
    std::vector<RbTensor*> outputs(noutputs_);
    int32_t code = RB_OK;
    {
      const rb::WithoutGil unlocked;
      code = program_run_with(program_, tensors.data(), static_cast<uint32_t>(tensors.size()),
                              given.data(), static_cast<uint32_t>(given.size()), outputs.data(),
                              static_cast<uint32_t>(outputs.size()), &failed_);
    }
    check(code);
    return wrapped(outputs);
  }

  int32_t failed() const { return failed_; }

  // Of the program, for callers of the table. It lives as long as this object.
  py::capsule handle() const { return py::capsule(program_, "rabbet.graph.program"); }

 private:
  static std::vector<RbValue> values_of(const py::sequence& numbers) {
    std::vector<RbValue> made;
    for (const py::handle number : numbers) {
      RbValue value{};
      if (py::isinstance<py::float_>(number)) {
        value.tag = RB_FLOAT;
        value.v.f = number.cast<double>();
      } else if (py::isinstance<py::int_>(number)) {
        value.tag = RB_INT;
        value.v.i = number.cast<int64_t>();
      } else {
        throw py::type_error("Program.run: expected numbers, got " +
                             std::string(Py_TYPE(number.ptr())->tp_name));
      }
      made.push_back(value);
    }
    return made;
  }

  static py::list wrapped(const std::vector<RbTensor*>& outputs) {
    py::list made;
    bool raised = false;
    for (RbTensor* output : outputs) {  // each reference is taken over, also after an error
      PyObject* object = core->wrap(output);
      if (object) made.append(py::reinterpret_steal<py::object>(object));
      raised |= !object;
    }
    if (raised) throw py::error_already_set();
    return made;
  }

  RbProgram* program_ = nullptr;
  size_t noutputs_ = 0;
  py::list arguments_;
  static thread_local int32_t failed_;
};
thread_local int32_t Program::failed_ = -1;

// Dtypes, devices, shapes and strides of a list of tensors as bytes; None if one is no tensor.
PyObject* signature(PyObject*, PyObject* tensors) {
  if (!PyList_Check(tensors)) {
    PyErr_SetString(PyExc_TypeError, "signature: expected a list");
    return nullptr;
  }
  std::vector<int64_t> words;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(tensors); ++i) {
    const RbTensor* t = core->unwrap(PyList_GET_ITEM(tensors, i));
    if (!t) Py_RETURN_NONE;
    words.push_back(int64_t{t->dtype_id} | int64_t{t->backend} << 16 | int64_t{t->layout} << 24 |
                    int64_t{t->ndim} << 32);
    words.push_back(t->device.id);
    words.insert(words.end(), t->shape, t->shape + t->ndim);
    words.insert(words.end(), t->strides, t->strides + t->ndim);
  }
  return PyBytes_FromStringAndSize(reinterpret_cast<const char*>(words.data()),
                                   static_cast<Py_ssize_t>(words.size() * sizeof(int64_t)));
}

}  // namespace

PYBIND11_MODULE(_C, m) {
  core = static_cast<const RbPython*>(PyCapsule_Import(RB_PYTHON_CAPSULE, 0));
  if (!core) throw py::error_already_set();
  if (core->struct_size < sizeof(RbPython))
    throw py::import_error("rabbet.graph needs a newer rabbet-core: upgrade it");
  rb::host = core->host;
  if (!rb::host->get_ext(RB_GRAPH_EXT, RB_GRAPH_VERSION))
    check(rb::host->publish(RB_GRAPH_EXT, RB_GRAPH_VERSION, &table));
  static PyMethodDef methods[] = {
      {"signature", signature, METH_O,
       "What checks of inputs look at but for shared memory, as bytes; None if one is no tensor."},
      {nullptr, nullptr, 0, nullptr}};
  if (PyModule_AddFunctions(m.ptr(), methods) < 0) throw py::error_already_set();
  py::class_<Program>(m, "Program", "Calls of operators that run without Python between them.")
      .def(py::init<uint32_t, uint32_t>(), py::arg("ninputs"), py::arg("nslots"))
      .def("add", &Program::add, py::arg("op"), py::arg("args"), py::arg("places"), py::arg("outs"),
           py::arg("results"), py::arg("returns_list"), py::arg("last"), py::arg("exclude"),
           py::arg("numbers") = std::vector<std::pair<int32_t, uint32_t>>())
      .def("finish", &Program::finish, py::arg("slots"))
      .def("run", &Program::run, py::arg("inputs"), py::arg("numbers") = py::tuple())
      .def_property_readonly(
          "handle", &Program::handle,
          "For callers of the table \"rabbet.graph\"; valid as long as the object lives.")
      .def_property_readonly("failed", &Program::failed,
                             "The step at which this thread's last run failed, or -1.");
}
