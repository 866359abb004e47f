/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory, streams, events and graphs; see cuda_runtime.h for what this is and what it is not. */
#include <cstdio>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

#include "tests/cuda_emulation/emulation.h"
#include "tests/cuda_emulation/emulation_parts.h"

static const mill_emulation_settings usual = {(size_t)1 << 30, 0, NULL, -1, 0, 13000};
mill_emulation_settings mill_emulation = usual;

namespace
{

/* Threads of a reader take and give back pinned memory. */
std::recursive_mutex mutex;
typedef std::lock_guard<std::recursive_mutex> guard;

/* ---- failures and counts ---- */

mill_emulation_counts counts;
cudaError_t sticky = cudaSuccess, last_error = cudaSuccess;
size_t launch_has = 0;

cudaError_t done(cudaError_t status)
{
  if (sticky != cudaSuccess)
    status = sticky;
  if (status != cudaSuccess)
    last_error = status;
  return status;
}

void run_kernel(dim3 grid, dim3 block, const std::function<void()> &thread)
{
  counts.n_kernel++;
  if (mill_emulation.n_kernel_to_fail >= 0 && mill_emulation.n_kernel_to_fail-- == 0)
    sticky = (cudaError_t)mill_emulation.kernel_error;
  else
    mill_emu_run_grid(grid, block, thread);
}

/* ---- memory ---- */

typedef std::map<char *, size_t> pieces;
pieces device_memory, pinned;

/* Pieces follow one another, as a GPU's often do; what they leave is not given to others. */
const size_t DEVICE_ALIGN = 256, POOL_BYTES = (size_t)64 << 30;
char *pool = NULL;
size_t pool_at = 0;

/** Only while work is done. */
void reach(bool device)
{
  if (pool_at > 0)
    mprotect(pool, pool_at, device ? PROT_READ | PROT_WRITE : PROT_NONE);
}

bool lies_in(const pieces &all, const void *at, size_t bytes)
{
  auto entry = all.upper_bound((char *)at);
  if (entry == all.begin())
    return false;
  --entry;
  return (char *)at + bytes <= entry->first + entry->second;
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
    mill_emu_stop("the default stream is not to be used");
  guard lock(mutex);
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
  guard lock(mutex);
  reach(true);
  while (!condition() && sticky == cudaSuccess) {
    std::vector<mill_emu_stream *> ready;
    for (mill_emu_stream *s : streams)
      if (!s->work.empty() && (!s->work.front().ready || s->work.front().ready()))
        ready.push_back(s);
    if (ready.empty())
      mill_emu_stop("streams wait for events that are never recorded");
    mill_emu_stream *s = ready[mill_emu_random(ready.size())];
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

extern "C" void mill_emulation_reset(void)
{
  sticky = last_error = cudaSuccess;
  counts.n_byte_now -= launch_has;
  launch_has = 0;
  mill_emulation = usual;
}

extern "C" mill_emulation_counts mill_emulation_count(void)
{
  return counts;
}

cudaError_t mill_emu_launch(const cudaLaunchConfig_t *config, std::function<void()> thread)
{
  const dim3 grid = config->gridDim, block = config->blockDim;
  if (grid.x < 1 || grid.y < 1 || grid.z < 1 || grid.y > 65535 || block.x > 1024)
    return done(cudaErrorInvalidValue);
  if (counts.n_byte_now + mill_emulation.launch_bytes > mill_emulation.memory_bytes)
    return done(cudaErrorMemoryAllocation);
  counts.n_byte_now += mill_emulation.launch_bytes;
  launch_has += mill_emulation.launch_bytes;
  mill_emulation.launch_bytes = 0;
  return enqueue(config->stream, {nullptr, [=] { run_kernel(grid, block, thread); }});
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

cudaError_t cudaDriverGetVersion(int *version)
{
  *version = mill_emulation.driver;
  return cudaSuccess;
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *attributes, const void *)
{
  attributes->numRegs = 0;
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *n_free, size_t *n_total)
{
  *n_total = mill_emulation.memory_bytes;
  *n_free = counts.n_byte_now < mill_emulation.memory_bytes
                ? mill_emulation.memory_bytes - counts.n_byte_now
                : 0;
  return done(cudaSuccess);
}

cudaError_t cudaMalloc(void **memory, size_t bytes)
{
  guard lock(mutex);
  if (bytes < 1 || counts.n_byte_now + bytes > mill_emulation.memory_bytes) {
    counts.n_refused++;
    return done(cudaErrorMemoryAllocation);
  }
  const size_t room = (bytes + DEVICE_ALIGN - 1) / DEVICE_ALIGN * DEVICE_ALIGN;
  if (!pool) {
    void *all =
        mmap(NULL, POOL_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (all == MAP_FAILED)
      mill_emu_stop("no memory for a pool");
    pool = (char *)all;
  }
  char *begin = pool + pool_at;
  pool_at += room;
  if (pool_at > POOL_BYTES)
    mill_emu_stop("the pool is used up");
  reach(true);
  memset(begin, 0xff, room); /* NaN in every type */
  reach(false);
  device_memory[begin] = bytes;
  counts.n_byte_now += bytes;
  if (counts.n_byte_now > counts.n_byte_most)
    counts.n_byte_most = counts.n_byte_now;
  *memory = begin;
  return done(cudaSuccess);
}

cudaError_t cudaFree(void *memory)
{
  guard lock(mutex);
  if (!memory)
    return done(cudaSuccess);
  if (sticky == cudaSuccess)
    work_off_all();
  auto entry = device_memory.find((char *)memory);
  if (entry == device_memory.end())
    mill_emu_stop("memory freed that is not the device's");
  counts.n_byte_now -= entry->second;
  const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), at = (uintptr_t)memory;
  const uintptr_t first = (at + page - 1) / page * page, end = (at + entry->second) / page * page;
  if (first < end)
    madvise((void *)first, end - first, MADV_DONTNEED);
  device_memory.erase(entry);
  return done(cudaSuccess);
}

cudaError_t cudaMallocHost(void **memory, size_t bytes)
{
  guard lock(mutex);
  *memory = malloc(bytes);
  if (!*memory)
    return done(cudaErrorMemoryAllocation);
  memset(*memory, 0xff, bytes);
  pinned[(char *)*memory] = bytes;
  return cudaSuccess;
}

cudaError_t cudaFreeHost(void *memory)
{
  guard lock(mutex);
  if (sticky == cudaSuccess)
    work_off_all();
  pinned.erase((char *)memory);
  free(memory);
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream)
{
  guard lock(mutex);
  const int up = kind == cudaMemcpyHostToDevice;
  const void *device = up ? to : from, *host = up ? from : to;
  if (!lies_in(device_memory, device, bytes))
    mill_emu_stop("a copy reaches beyond the device's memory");
  const cudaError_t status =
      enqueue(stream, {nullptr, [=] {
                         memcpy(to, from, bytes);
                         (up ? counts.upload_bytes : counts.download_bytes) += (long)bytes;
                         counts.n_upload += up && bytes > MILL_EMULATION_LIST_BYTES;
                       }});
  if (status == cudaSuccess && !lies_in(pinned, host, 1)) {
    if (stream->capture)
      mill_emu_stop("a graph copies from memory that is not pinned");
    work_until([=] { return stream->work.empty(); });
  }
  return done(status);
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream)
{
  if (!lies_in(device_memory, to, bytes))
    mill_emu_stop("memory beyond the device's is set");
  return enqueue(stream, {nullptr, [=] { memset(to, value, bytes); }});
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned)
{
  guard lock(mutex);
  *stream = new mill_emu_stream();
  streams.insert(*stream);
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
  guard lock(mutex);
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
  if (!mill_emulation.graph_call_to_fail || strcmp(mill_emulation.graph_call_to_fail, call) != 0)
    return false;
  mill_emulation.graph_call_to_fail = NULL;
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
    mill_emu_stop("a graph destroyed that is none");
  for (mill_emu_graph *inner : graph->inner) {
    if (inner->is_broken)
      mill_emu_stop("a graph destroyed whose capture had failed");
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
    mill_emu_stop("a kind of graph node that is not emulated");
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
