--- Environment variables that a recipe's `env` may set: name -> help. A recipe cannot set others,
-- because some make a library load other code or write files.
local variables = {
  OMP_NUM_THREADS = "compute threads of a rank, if `threads` is 0",
  OMP_PROC_BIND = "keep threads on their processors: true, close, spread",
  OMP_PLACES = "processors that threads are kept on: cores, sockets, {0:8}",
  OMP_WAIT_POLICY = "how threads wait for work: active, passive",
  GOMP_SPINCOUNT = "rounds that a thread waits for work before it sleeps",
  MALLOC_ARENA_MAX = "heaps of the C library",
  ONEDNN_MAX_CPU_ISA = "newest instruction set that oneDNN uses",
  MOONREEL_ISA = "newest instruction set of moonreel's own kernels",
  TOKENIZERS_PARALLELISM = "for the tokenizers package: false turns threads off in forked workers; "
    .. "moonreel does not read it",
  TORCH_NCCL_ASYNC_ERROR_HANDLING = "PyTorch's: a failed collective ends the rank; nothing here "
    .. "reads it",
  TORCH_NCCL_ENABLE_MONITORING = "PyTorch's: a thread watches for hanging collectives; nothing "
    .. "here reads it",
  CUDA_VISIBLE_DEVICES = "GPUs that a process sees",
  CUDA_DEVICE_ORDER = "numbers of GPUs: PCI_BUS_ID, FASTEST_FIRST",
  CUDA_DEVICE_MAX_CONNECTIONS = "queues to a GPU; 1 keeps launches in order",
  CUDA_LAUNCH_BLOCKING = "1: wait for each kernel, to find the one that fails",
  NCCL_DEBUG = "messages that NCCL prints: WARN, INFO",
  NCCL_DEBUG_SUBSYS = "parts of NCCL that print: INIT, NET, COLL",
  NCCL_SOCKET_IFNAME =
    "network interface of NCCL's bootstrap: eth0, =eth0 (exactly), ^lo (all but)",
  NCCL_SOCKET_NTHREADS = "helper threads per connection of the socket transport",
  NCCL_NSOCKS_PERTHREAD = "sockets per helper thread",
  NCCL_IB_DISABLE = "1: sockets instead of InfiniBand",
  NCCL_IB_HCA = "InfiniBand adapters: mlx5 (all names with this beginning), =mlx5_1 (exactly "
    .. "this; the value begins with =), ^mlx5_2 (all but)",
  NCCL_IB_TIMEOUT = "time of an InfiniBand request, 4.096 us x 2^value",
  NCCL_IB_RETRY_CNT = "retries of an InfiniBand request",
  NCCL_IB_GID_INDEX = "index of an adapter's address, for RoCE",
  NCCL_IB_TC = "traffic class of InfiniBand",
  NCCL_IB_SL = "service level of InfiniBand",
  NCCL_IB_QPS_PER_CONNECTION = "queue pairs of a connection",
  NCCL_IB_PCI_RELAXED_ORDERING = "1: PCI may reorder the writes of the cards, which virtual "
    .. "machines need for full speed",
  NCCL_NET_GDR_LEVEL =
    "how far an adapter may be from a GPU that it reads: LOC, PIX, PXB, PHB, SYS",
  NCCL_P2P_DISABLE = "1: GPUs do not read each other's memory",
  NCCL_P2P_LEVEL = "largest distance between GPUs that do so: NVL (joined by NVLink), PIX, "
    .. "PXB, PHB, SYS",
  NCCL_SHM_DISABLE = "1: no shared memory between ranks of a host",
  NCCL_CROSS_NIC = "1: rings may change adapters between hosts",
  NCCL_ALGO = "collective algorithms: Ring, Tree, ...",
  NCCL_PROTO = "protocols: Simple, LL, LL128",
  NCCL_BUFFSIZE = "bytes of the buffers between two GPUs",
  NCCL_NTHREADS = "threads of a communication block",
  NCCL_MIN_NCHANNELS = "fewest communication blocks",
  NCCL_MAX_NCHANNELS = "most communication blocks",
  GLOO_SOCKET_IFNAME = "network interface of Gloo",
  UCX_NET_DEVICES = "network devices of UCX: mlx5_0:1",
  UCX_TLS = "transports of UCX: rc, sm, tcp",
}

return variables
