/* SPDX-License-Identifier: BSD-3-Clause */
/* See cuda_runtime.h for what this is and what it is not. */
#include <cstdio>
#include <deque>
#include <map>
#include <set>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

#include "kernels/cuda/cuda_probe.h"
#include "kernels/cuda/device_facts.h"
#include "kernels/base/error.h"
#include "kernels/base/memory.h"
#include "kernels/fiber/fiber_switch.h"
#include "tests/cuda_emulation/cuda_runtime.h"
#include "tests/cuda_emulation/emulation.h"

mill_emu_index mill_emu_thread_idx, mill_emu_block_idx;
dim3 mill_emu_block_dim, mill_emu_grid_dim;

namespace
{

[[noreturn]] void stop(const char *what)
{
  fprintf(stderr, "cuda emulation: %s\n", what);
  abort();
}

/* ---- random order ---- */

unsigned random_state = 1;

unsigned next_random()
{
  random_state ^= random_state << 13;
  random_state ^= random_state >> 17;
  random_state ^= random_state << 5;
  return random_state;
}

/* 0 .. n - 1, without a division: order is drawn for every barrier of every warp */
size_t random_below(size_t n)
{
  return (size_t)((uint64_t)next_random() * n >> 32);
}

template <typename type> void shuffle(std::vector<type> &x)
{
  for (size_t i = x.size(); i > 1; i--)
    std::swap(x[i - 1], x[random_below(i)]);
}

/* ---- threads of a block ---- */

enum { MAX_THREAD = 1024, WARP = 32, EXCHANGE = 64 };
/* without colours the tops of all stacks, whole pages apart, would share a few lines of cache */
const size_t STACK_BYTES = (size_t)96 << 10, COLOUR_BYTES = 7 * 64, N_COLOUR = 32;

enum fiber_state { AT_BLOCK, AT_WARP, ENDED };

/* Fibers live on from block to block: making one costs more than running it. */
struct fiber {
  mill_fiber_place here;
  bool made;
  fiber_state state;
  unsigned n_exchange;
};

fiber fibers[MAX_THREAD];
unsigned char exchange[MAX_THREAD / WARP][2][WARP * EXCHANGE];
int current;
mill_fiber_place scheduler;
const std::function<void()> *body;

void to_scheduler(fiber *f)
{
  mill_fiber_switch(&f->here, &scheduler);
}

void fiber_main()
{
  for (;;) {
    (*body)();
    fibers[current].state = ENDED;
    to_scheduler(&fibers[current]);
  }
}

void make(fiber *f)
{
  const size_t bytes = STACK_BYTES + (size_t)(f - fibers) % N_COLOUR * COLOUR_BYTES;
  void *stack = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (stack == MAP_FAILED)
    stop("no memory for a thread");
  mill_fiber_make(&f->here, stack, bytes, fiber_main);
  f->made = true;
}

void to_fiber(int id)
{
  fiber *f = &fibers[id];
  current = id;
  mill_emu_thread_idx = {(unsigned)id, 0, 0};
  if (!f->made)
    make(f);
  mill_fiber_switch(&scheduler, &f->here);
}

void wait_at(fiber_state what)
{
  fiber *f = &fibers[current];
  f->state = what;
  to_scheduler(f);
}

void shuffle_ints(int *x, int n)
{
  for (int i = n; i > 1; i--)
    std::swap(x[i - 1], x[random_below((size_t)i)]);
}

/** Run a warp until all of its lanes wait for the block, or have ended. */
void run_warp(int warp)
{
  int order[WARP], n_ended = 0, n_at_block = 0;
  for (int i = 0; i < WARP; i++)
    order[i] = warp * WARP + i;
  for (;;) {
    shuffle_ints(order, WARP);
    n_ended = n_at_block = 0;
    for (int i : order) {
      to_fiber(i);
      n_ended += fibers[i].state == ENDED;
      n_at_block += fibers[i].state == AT_BLOCK;
    }
    if (n_ended == WARP || n_at_block == WARP)
      return;
    if (n_ended + n_at_block > 0)
      stop("lanes of a warp wait at different barriers, or some have ended");
  }
}

void run_block(int n)
{
  if (n < 1 || n > MAX_THREAD || n % WARP != 0)
    stop("a block must be made of whole warps, 1024 threads at most");
  const int n_warp = n / WARP;
  int order[MAX_THREAD / WARP];
  for (int i = 0; i < n; i++)
    fibers[i].n_exchange = 0;
  for (int w = 0; w < n_warp; w++)
    order[w] = w;
  for (;;) {
    int n_ended = 0;
    shuffle_ints(order, n_warp);
    for (int w = 0; w < n_warp; w++) {
      run_warp(order[w]);
      n_ended += fibers[order[w] * WARP].state == ENDED;
    }
    if (n_ended == n_warp)
      return;
    if (n_ended > 0)
      stop("some warps of a block wait at a barrier, others have ended");
  }
}

/* ---- failures and counts ---- */

mill_emulation_counts counts;
cudaError_t sticky = cudaSuccess, last_error = cudaSuccess;
long fail_after = -1;
cudaError_t fail_with = cudaSuccess;
size_t memory_limit = (size_t)1 << 30;
size_t launch_wants = 0, launch_has = 0;
const char *graph_call_that_fails = NULL;
int driver_version = 13000;

cudaError_t done(cudaError_t status)
{
  if (sticky != cudaSuccess)
    status = sticky;
  if (status != cudaSuccess)
    last_error = status;
  return status;
}

void run_grid(dim3 grid, dim3 block, const std::function<void()> &thread)
{
  if (block.y != 1 || block.z != 1)
    stop("blocks of one dimension only");
  counts.n_kernel++;
  if (fail_after >= 0 && fail_after-- == 0) {
    sticky = fail_with;
    return;
  }
  std::vector<mill_emu_index> order;
  for (unsigned z = 0; z < grid.z; z++)
    for (unsigned y = 0; y < grid.y; y++)
      for (unsigned x = 0; x < grid.x; x++)
        order.push_back({x, y, z});
  shuffle(order);
  mill_emu_block_dim = block;
  mill_emu_grid_dim = grid;
  body = &thread;
  for (const mill_emu_index &index : order) {
    mill_emu_block_idx = index;
    run_block((int)block.x);
  }
}

/* ---- memory ---- */

struct piece {
  char *page; /* first of its pages; a page without access follows them */
  size_t page_bytes, bytes;
  bool is_mapped; /* by itself; else it lies in the pool with others */
};
std::map<char *, piece> device_memory;

const size_t DEVICE_ALIGN = 256, POOL_BYTES = (size_t)4 << 30;
bool adjacent = false;
char *pool = NULL; /* what pieces leave is not given to others */
size_t pool_at = 0;
std::map<char *, size_t> pinned;

void reach(bool device)
{
  if (pool_at > 0)
    mprotect(pool, pool_at, device ? PROT_READ | PROT_WRITE : PROT_NONE);
  for (auto &entry : device_memory)
    if (entry.second.is_mapped)
      mprotect(entry.second.page, entry.second.page_bytes,
               device ? PROT_READ | PROT_WRITE : PROT_NONE);
}

/** Right after the last piece. */
char *take_from_pool(size_t bytes)
{
  if (!pool) {
    void *all =
        mmap(NULL, POOL_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (all == MAP_FAILED)
      stop("no memory for a pool");
    pool = (char *)all;
  }
  const size_t page = (size_t)sysconf(_SC_PAGESIZE), first = pool_at / page * page;
  char *begin = pool + pool_at;
  pool_at += bytes;
  if (pool_at > POOL_BYTES)
    stop("the pool is used up");
  mprotect(pool + first, pool_at - first, PROT_READ | PROT_WRITE);
  memset(begin, 0xff, bytes);
  mprotect(pool + first, pool_at - first, PROT_NONE);
  return begin;
}

bool on_device(const void *at, size_t bytes)
{
  auto entry = device_memory.upper_bound((char *)at);
  if (entry == device_memory.begin())
    return false;
  --entry;
  return (char *)at + bytes <= entry->first + entry->second.bytes;
}

bool is_pinned(const void *at)
{
  auto entry = pinned.upper_bound((char *)at);
  if (entry == pinned.begin())
    return false;
  --entry;
  return (char *)at < entry->first + entry->second;
}

} // namespace

/* ---- streams ---- */

struct operation {
  std::function<bool()> ready; /* empty: always */
  std::function<void()> run;
};

struct mill_emu_event {
  unsigned long asked, reached;
};

struct mill_emu_graph {
  bool is_broken; /* its capture failed */
  std::vector<operation> work;
  std::vector<mill_emu_graph *> inner;
  std::vector<std::pair<size_t, unsigned>> first; /* of its conditions, at every launch */
};

struct mill_emu_exec {
  mill_emu_graph *graph;
};

struct mill_emu_stream {
  std::deque<operation> work;
  mill_emu_graph *capture;
};

namespace
{

std::set<mill_emu_stream *> streams;
std::set<mill_emu_graph *> graphs;
std::vector<unsigned> conditions;

cudaError_t enqueue(cudaStream_t stream, operation op)
{
  if (!stream)
    stop("the default stream is not to be used");
  if (sticky != cudaSuccess)
    return done(sticky);
  if (stream->capture)
    stream->capture->work.push_back(op);
  else
    stream->work.push_back(op);
  return cudaSuccess;
}

/** Do work of all streams in a random order until the condition holds. */
void work_until(const std::function<bool()> &condition)
{
  reach(true);
  while (!condition() && sticky == cudaSuccess) {
    std::vector<mill_emu_stream *> ready;
    for (mill_emu_stream *s : streams)
      if (!s->work.empty() && (!s->work.front().ready || s->work.front().ready()))
        ready.push_back(s);
    if (ready.empty())
      stop("streams wait for events that are never recorded");
    mill_emu_stream *s = ready[random_below(ready.size())];
    const operation op = s->work.front();
    s->work.pop_front();
    op.run();
  }
  reach(false);
}

void work_off_all()
{
  work_until([] {
    for (mill_emu_stream *s : streams)
      if (!s->work.empty())
        return false;
    return true;
  });
}

} // namespace

extern "C" {

void mill_emulation_seed(unsigned seed)
{
  random_state = seed | 1u;
}

void mill_emulation_memory(size_t bytes)
{
  memory_limit = bytes;
}

void mill_emulation_adjacent(int on)
{
  adjacent = on != 0;
}

void mill_emulation_launch_memory(size_t bytes)
{
  launch_wants = bytes;
}

void mill_emulation_fail_graph(const char *call)
{
  graph_call_that_fails = call;
}

void mill_emulation_fail(long n_more, int error)
{
  fail_after = n_more;
  fail_with = (cudaError_t)error;
}

void mill_emulation_driver(int version)
{
  driver_version = version;
}

void mill_emulation_reset(void)
{
  fail_after = -1;
  sticky = last_error = cudaSuccess;
  memory_limit = (size_t)1 << 30;
  counts.n_byte_now -= launch_has;
  launch_wants = launch_has = 0;
  graph_call_that_fails = NULL;
  driver_version = 13000;
}

mill_emulation_counts mill_emulation_count(void)
{
  return counts;
}
}

void __syncthreads()
{
  wait_at(AT_BLOCK);
}

void __syncwarp(unsigned mask)
{
  if (mask != 0xffffffffu)
    stop("whole warps only");
  wait_at(AT_WARP);
}

const unsigned char *mill_emu_exchange(const void *mine, size_t bytes)
{
  /* two buffers in turn: a lane that writes the first one again has passed the barrier of the
   * second, before which every lane had read the first */
  fiber *f = &fibers[current];
  const unsigned id = (unsigned)current;
  unsigned char *all = exchange[id / WARP][f->n_exchange++ % 2];
  memcpy(all + id % WARP * EXCHANGE, mine, bytes);
  wait_at(AT_WARP);
  return all;
}

cudaError_t mill_emu_launch(const cudaLaunchConfig_t *config, std::function<void()> thread)
{
  const dim3 grid = config->gridDim, block = config->blockDim;
  if (grid.x < 1 || grid.y < 1 || grid.z < 1 || grid.y > 65535 || block.x > MAX_THREAD)
    return done(cudaErrorInvalidValue);
  if (counts.n_byte_now + launch_wants > memory_limit)
    return done(cudaErrorMemoryAllocation);
  counts.n_byte_now += launch_wants;
  launch_has += launch_wants;
  launch_wants = 0;
  return enqueue(config->stream, {nullptr, [=] { run_grid(grid, block, thread); }});
}

const char *cudaGetErrorString(cudaError_t)
{
  return "emulated failure";
}

const char *cudaGetErrorName(cudaError_t status)
{
  static char text[40];
  snprintf(text, sizeof text, "CUDA error %d", (int)status);
  return text;
}

cudaError_t cudaGetLastError()
{
  const cudaError_t status = sticky != cudaSuccess ? sticky : last_error;
  last_error = cudaSuccess;
  return status;
}

cudaError_t cudaPeekAtLastError()
{
  return sticky != cudaSuccess ? sticky : last_error;
}

/* GPUs of this machine: MILL_EMULATED_GPUS, else one. */
static int count_gpus()
{
  const char *text = getenv("MILL_EMULATED_GPUS");
  return text ? atoi(text) : 1;
}

cudaError_t cudaGetDeviceCount(int *n)
{
  *n = count_gpus();
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int id)
{
  return id >= 0 && id < count_gpus() ? cudaSuccess : done(cudaErrorNoDevice);
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *prop, int)
{
  memset(prop, 0, sizeof *prop);
  snprintf(prop->name, sizeof prop->name, "no GPU, emulated on the CPU");
  prop->major = 9;
  return cudaSuccess;
}

void mill_emu_promise(const void *at, int is_global)
{
  if (on_device(at, 1) != (is_global != 0))
    stop("a kernel promises a pointer into other memory than it has");
}

/* kernels/cuda/device_facts.cu and cuda_probe.cu ask CUDA for more than is emulated */
int mill_gpu_is_built(void)
{
  return 1;
}

int mill_gpu_look(mill_gpu_node *node, mill_gpu_facts **gpu)
{
  int err = MILL_OK;
  const int n_gpu = count_gpus();
  memset(node, 0, sizeof *node);
  MILL_TRY(mill_alloc_bytes((size_t)n_gpu, sizeof **gpu, (void **)gpu));
  for (int i = 0; i < n_gpu; i++) {
    cudaDeviceProp prop;
    cudaGetDeviceProperties(&prop, i);
    snprintf((*gpu)[i].name, sizeof(*gpu)[i].name, "%.60s", prop.name);
    (*gpu)[i].major = prop.major;
    (*gpu)[i].uuid[0] = (unsigned char)(1 + i);
  }
  node->driver = node->runtime = CUDART_VERSION;
  node->architectures = "90";
  node->n_gpu = n_gpu;
  node->gpu = *gpu;
done:
  return err;
}

int mill_gpu_try(int gpu, const char *name, size_t *free_bytes)
{
  int err = MILL_OK;
  size_t total;
  if (cudaSetDevice(gpu) != cudaSuccess || cudaMemGetInfo(free_bytes, &total) != cudaSuccess)
    MILL_FAIL(MILL_ERR_BACKEND, "the GPU %s cannot be used", name);
done:
  return err;
}

void mill_gpu_release(void)
{
  mill_gpu_assign(NULL);
}

int mill_cuda_probe(int *driver, int *runtime, int *n_device)
{
  *driver = *runtime = CUDART_VERSION;
  *n_device = count_gpus();
  return MILL_OK;
}

int mill_cuda_probe_device(int i, mill_cuda_device *device)
{
  cudaDeviceProp prop;
  memset(device, 0, sizeof *device);
  cudaGetDeviceProperties(&prop, i);
  snprintf(device->name, sizeof device->name, "%.60s", prop.name);
  snprintf(device->bus_id, sizeof device->bus_id, "%d", i);
  device->major = prop.major;
  cudaMemGetInfo(&device->free, &device->total);
  return MILL_OK;
}

/* No PCI address is a GPU's that NVML could find. */
void mill_cuda_probe_bus(char *out, size_t size)
{
  mill_gpu_place place;
  if (mill_gpu_assigned(&place))
    snprintf(out, size, "emulated %d", place.gpu);
}

cudaError_t cudaDriverGetVersion(int *version)
{
  *version = driver_version;
  return cudaSuccess;
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *attributes, const void *)
{
  attributes->numRegs = 0;
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *n_free, size_t *n_total)
{
  *n_total = memory_limit;
  *n_free = counts.n_byte_now < memory_limit ? memory_limit - counts.n_byte_now : 0;
  return done(cudaSuccess);
}

cudaError_t cudaMalloc(void **memory, size_t bytes)
{
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  if (bytes < 1 || counts.n_byte_now + bytes > memory_limit) {
    counts.n_refused++;
    return done(cudaErrorMemoryAllocation);
  }
  const size_t room = (bytes + DEVICE_ALIGN - 1) / DEVICE_ALIGN * DEVICE_ALIGN;
  const size_t n = (room + page - 1) / page * page;
  char *at = NULL, *begin;
  if (adjacent) {
    begin = take_from_pool(room);
  } else {
    at = (char *)mmap(NULL, n + page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == (char *)MAP_FAILED)
      return done(cudaErrorMemoryAllocation);
    begin = at + (n - room); /* what is beyond the end is beyond reach */
    mprotect(at, n, PROT_READ | PROT_WRITE);
    memset(at, 0xff, n); /* NaN in every type */
    mprotect(at, n, PROT_NONE);
  }
  device_memory[begin] = {at, n, bytes, !adjacent};
  counts.n_byte_now += bytes;
  if (counts.n_byte_now > counts.n_byte_most)
    counts.n_byte_most = counts.n_byte_now;
  *memory = begin;
  return done(cudaSuccess);
}

cudaError_t cudaFree(void *memory)
{
  if (!memory)
    return done(cudaSuccess);
  if (sticky == cudaSuccess)
    work_off_all();
  auto entry = device_memory.find((char *)memory);
  if (entry == device_memory.end())
    stop("memory freed that is not the device's");
  counts.n_byte_now -= entry->second.bytes;
  if (entry->second.is_mapped)
    munmap(entry->second.page, entry->second.page_bytes + (size_t)sysconf(_SC_PAGESIZE));
  device_memory.erase(entry);
  return done(cudaSuccess);
}

cudaError_t cudaMallocHost(void **memory, size_t bytes)
{
  *memory = malloc(bytes);
  if (!*memory)
    return done(cudaErrorMemoryAllocation);
  memset(*memory, 0xff, bytes);
  pinned[(char *)*memory] = bytes;
  return cudaSuccess;
}

cudaError_t cudaFreeHost(void *memory)
{
  if (sticky == cudaSuccess)
    work_off_all();
  pinned.erase((char *)memory);
  free(memory);
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream)
{
  const int up = kind == cudaMemcpyHostToDevice;
  const void *device = up ? to : from, *host = up ? from : to;
  if (!on_device(device, bytes))
    stop("a copy reaches beyond the device's memory");
  const cudaError_t status =
      enqueue(stream, {nullptr, [=] {
                         memcpy(to, from, bytes);
                         (up ? counts.upload_bytes : counts.download_bytes) += (long)bytes;
                         counts.n_upload += up && bytes > MILL_EMULATION_LIST_BYTES;
                       }});
  if (status == cudaSuccess && !is_pinned(host)) {
    if (stream->capture)
      stop("a graph copies from memory that is not pinned");
    work_until([=] { return stream->work.empty(); });
  }
  return done(status);
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream)
{
  if (!on_device(to, bytes))
    stop("memory beyond the device's is set");
  return enqueue(stream, {nullptr, [=] { memset(to, value, bytes); }});
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned)
{
  *stream = new mill_emu_stream();
  streams.insert(*stream);
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
  if (sticky == cudaSuccess)
    work_until([=] { return stream->work.empty(); });
  streams.erase(stream);
  delete stream;
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
  counts.n_synchronize++;
  if (sticky == cudaSuccess)
    work_until([=] { return stream->work.empty(); });
  return done(cudaSuccess);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned)
{
  *event = new mill_emu_event();
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
  if (sticky == cudaSuccess && event->reached < event->asked)
    work_until([=] { return event->reached >= event->asked; });
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
  const unsigned long ticket = ++event->asked;
  return enqueue(stream, {nullptr, [=] { event->reached = ticket; }});
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned)
{
  const unsigned long ticket = event->asked;
  return enqueue(stream, {[=] { return event->reached >= ticket; }, [] {}});
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
  const unsigned long ticket = event->asked;
  counts.n_synchronize++;
  if (sticky == cudaSuccess)
    work_until([=] { return event->reached >= ticket; });
  return done(cudaSuccess);
}

/* ---- graphs ---- */

namespace
{

/** Is this the call that is to fail?  Once. */
bool fails(const char *call)
{
  if (!graph_call_that_fails || strcmp(graph_call_that_fails, call) != 0)
    return false;
  graph_call_that_fails = NULL;
  return true;
}

} // namespace

cudaError_t cudaGraphCreate(cudaGraph_t *graph, unsigned)
{
  if (fails("cudaGraphCreate"))
    return done(cudaErrorMemoryAllocation);
  *graph = new mill_emu_graph();
  graphs.insert(*graph);
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
  if (graphs.erase(graph) == 0)
    stop("a graph destroyed that is none");
  for (mill_emu_graph *inner : graph->inner) {
    if (inner->is_broken)
      stop("a graph destroyed whose capture had failed");
    delete inner;
  }
  delete graph;
  return cudaSuccess;
}

cudaError_t cudaGraphConditionalHandleCreate(cudaGraphConditionalHandle *handle, cudaGraph_t graph,
                                             unsigned first, unsigned)
{
  conditions.push_back(first);
  *handle = conditions.size() - 1;
  graph->first.push_back({(size_t)*handle, first});
  return cudaSuccess;
}

void cudaGraphSetConditional(cudaGraphConditionalHandle handle, unsigned value)
{
  conditions[(size_t)handle] = value;
}

cudaError_t cudaGraphAddNode(cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *,
                             const cudaGraphEdgeData *, size_t, cudaGraphNodeParams *params)
{
  if (params->type != cudaGraphNodeTypeConditional ||
      params->conditional.type != cudaGraphCondTypeWhile)
    stop("a kind of graph node that is not emulated");
  if (fails("cudaGraphAddNode"))
    return done(cudaErrorNotSupported);
  static cudaGraph_t out[1];
  mill_emu_graph *inner = new mill_emu_graph();
  const size_t handle = (size_t)params->conditional.handle;
  graph->inner.push_back(inner);
  graph->work.push_back({nullptr, [=] {
                           while (conditions[handle] != 0 && sticky == cudaSuccess)
                             for (const operation &op : inner->work)
                               op.run();
                         }});
  out[0] = inner;
  params->conditional.phGraph_out = out;
  *node = NULL;
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCaptureToGraph(cudaStream_t stream, cudaGraph_t graph,
                                          const cudaGraphNode_t *, const cudaGraphEdgeData *,
                                          size_t, cudaStreamCaptureMode)
{
  if (fails("cudaStreamBeginCaptureToGraph"))
    return done(cudaErrorNotSupported);
  stream->capture = graph;
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
  *graph = stream->capture;
  stream->capture = NULL;
  if (fails("cudaStreamEndCapture")) {
    (*graph)->is_broken = true;
    return done(cudaErrorStreamCaptureInvalidated);
  }
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long)
{
  if (fails("cudaGraphInstantiate"))
    return done(cudaErrorMemoryAllocation);
  *exec = new mill_emu_exec{graph};
  return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
  delete exec;
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
  mill_emu_graph *graph = exec->graph;
  if (fails("cudaGraphLaunch"))
    return done(cudaErrorMemoryAllocation);
  counts.n_graph++;
  return enqueue(stream, {nullptr, [=] {
                            for (const auto &first : graph->first)
                              conditions[first.first] = first.second;
                            for (const operation &op : graph->work)
                              op.run();
                          }});
}
