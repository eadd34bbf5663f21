// A plan as text that another process can read: numbers of the graph and its engine, as JSON.
#include <sstream>

#include "dnn.h"

namespace cusim {
namespace {

constexpr const char* kBegin = "{\"cusim_plan\": \"";
constexpr const char* kEnd = "\"}";
constexpr size_t kMost = 4096;

class Writer {
 public:
  template <class T>
  void number(const T& x) {
    text_ << x << ' ';
  }
  template <class T, class F>
  void list(const std::vector<T>& values, F each) {
    number(values.size());
    for (const T& x : values) each(x);
  }
  std::string text() const { return text_.str(); }

 private:
  std::ostringstream text_;
};
class Reader {
 public:
  explicit Reader(const std::string& text) : text_(text) {}
  template <class T>
  void number(T& x) {
    text_ >> x;
  }
  template <class T, class F>
  void list(std::vector<T>& values, F each) {
    size_t count = 0;
    number(count);
    if (!text_ || count > kMost) return text_.setstate(std::ios::failbit);
    values.resize(count);
    for (T& x : values) each(x);
  }
  bool good() const { return !text_.fail(); }

 private:
  std::istringstream text_;
};

template <class Archive, class Graph>
void pass(Archive& a, Graph& graph) {
  const auto number = [&](auto& x) { a.number(x); };
  a.list(graph.nodes, [&](auto& n) {
    a.number(n.kind), a.number(n.mode), a.number(n.axis), a.number(n.alpha), a.number(n.beta);
    for (auto* list : {&n.before, &n.after, &n.stride, &n.dilation}) a.list(*list, number);
    a.list(n.tensors, [&](auto& t) {
      a.number(t.name), a.number(t.alignment), a.number(t.type);
      a.number(t.is_virtual), a.number(t.by_value), a.number(t.reordering);
      a.list(t.shape, number), a.list(t.strides, number);
    });
  });
}

}  // namespace

std::string dnn_text(const DnnGraph& graph, int engine) {
  Writer writer;
  writer.number(engine);
  pass(writer, graph);
  return kBegin + writer.text() + kEnd;
}

bool dnn_from_text(const std::string& text, DnnGraph* graph, int* engine) {
  const std::string begin = kBegin;
  const size_t end = text.find(kEnd);
  if (text.compare(0, begin.size(), begin) || end == std::string::npos) return false;
  Reader reader(text.substr(begin.size(), end - begin.size()));
  reader.number(*engine);
  pass(reader, *graph);
  return reader.good();
}

}  // namespace cusim
