// What a kernel finds wrong in its data is kept for the host, which looks when it waits. Twin of
// rbcuda::Report; of several findings one is kept.
struct Report {
  int found, kind;  // found: 0, 1 while it is being written, 2
  Int64 op;  // the address of its name, on the host
  Int64 value, size;
  double real;
  int dim, reserved;
};
struct Finder {  // what a call knows beforehand; twin of rbcuda's
  Report* report;
  Int64 op, size;
  int kind, dim;
};
__device__ inline void found(const Finder& f, Int64 value, double real) {
  Report* r = f.report;
  if (atomicCAS(&r->found, 0, 1) != 0) return;
  r->kind = f.kind;
  r->op = f.op;
  r->value = value;
  r->size = f.size;
  r->real = real;
  r->dim = f.dim;
  __threadfence_system();
  atomicExch(&r->found, 2);
}
