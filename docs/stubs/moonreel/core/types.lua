---@meta
-- Made from the rows of the bindings: moonreel help stubs DIR

---@alias mr.Dtype "f64"|"f32"|"bf16"|"i64"|"i32"|"u8"|"bool"|"f8_e4m3"|"f8_e5m2"

--- Decides which bucket a sample enters.
---@class mr.BucketRule
local BucketRule = {}

---@class mr.BucketRule.assign.options
---@field frames? integer Frames of the clip; 1: a picture. Default: 1.
---@field height? integer As shown. Default: 1.
---@field width? integer As shown. Default: 1.
---@field key? integer Low half of the sample's key. Default: 0.
---@field seed? integer Of the order. Default: 0.
---@field epoch? integer From 0. Default: 0.
---@field row? integer Row of the index; the draws of a rule that follows a reference depend on it. Default: 1.
---@field fps? number Rate of the clip; 0: unknown. Default: 0.

--- The bucket that a sample enters: resolution, frames, height, width, batch; or nil and the reason.
---@param options mr.BucketRule.assign.options
---@return table?
---@return string?
function BucketRule:assign(options) end

--- A survey of the rows of an index in an epoch: used buckets with their samples and the mean pixels of their source frames, and dropped: {why, rows, example (a row from 1)}. The rows that a reference drops depend on the ranks.
---@param index mr.Index
---@param seed integer
---@param epoch integer
---@param members? mr.Subset
---@param ranks? integer
---@return table
function BucketRule:survey(index, seed, epoch, members, ranks) end

---@class mr.BucketRule.ask.options
---@field frames? integer Frames of the clip; 1: a picture. Default: 1.
---@field height? integer As shown. Default: 1.
---@field width? integer As shown. Default: 1.
---@field key? integer Low half of the sample's key. Default: 0.
---@field seed? integer Of the order. Default: 0.
---@field epoch? integer From 0. Default: 0.
---@field row? integer Row of the index; the draws of a rule that follows a reference depend on it. Default: 1.
---@field fps? number Rate of the clip; 0: unknown. Default: 0.

--- The answers of resolutions and lengths for a sample, in the order in which they are tried: {resolution, frames, says, draws (in 0..1)}; the last one takes the sample.
---@param options mr.BucketRule.ask.options
---@return table[]
function BucketRule:ask(options) end

--- The cost of planning this many synthetic rows: {plan_s, select_s (per sample), bytes, state_bytes, buckets, used}.
---@param rows integer
---@return table
function BucketRule:measure(rows) end

--- A hash of everything except batch sizes and costs: 16 hexadecimal digits, as in a state of the order.
---@param members? mr.Subset
---@return string
function BucketRule:hash(members) end

--- The frames, from 0, that a sample of this length takes from a clip; and the number of possible starts.
---@param frames integer
---@param have integer
---@param start? integer
---@param fps? number
---@return integer[]
---@return integer
function BucketRule:crop(frames, have, start, fps) end

--- Free its resources now; a second call does nothing. Also by <close>.
function BucketRule:close() end

--- An open checkpoint.
---@class mr.Ckpt
local Ckpt = {}

--- Names of all tensors, in file order.
---@return string[]
function Ckpt:names() end

--- {name, why} of tensors that exist but cannot be read.
---@return table[]
function Ckpt:refused() end

--- {name, dtype, shape, bytes} of a tensor; nil if no tensor has the name.
---@param name string
---@return table?
function Ckpt:info(name) end

--- Raw bytes of a tensor; those of a checkpoint are checked against their hash first.
---@param name string
---@param offset? integer
---@param n? integer
---@return string
function Ckpt:read(name, offset, n) end

--- Read a whole tensor into memory.
---@param name string
---@param pointer lightuserdata
---@param bytes integer
function Ckpt:read_into(name, pointer, bytes) end

--- Read slices {name, range or box, ptr, bytes} in the order of the files; without range and box the whole tensor.
---@param slices table[]
function Ckpt:read_slices(slices) end

--- Read elements from first on as f32 into the whole dense tensor.
---@param name string
---@param out mr.Tensor
---@param first? integer
function Ckpt:read_f32(name, out, first) end

--- Read everything and check all hashes or CRCs; raises if one differs. With part and parts, the share of one of several readers.
---@param part? integer
---@param parts? integer
function Ckpt:verify(part, parts) end

--- Read everything as verify does, but check nothing: the time of reading only.
function Ckpt:touch() end

--- What was opened.
---@return string
function Ckpt:path() end

--- Its step; nil for plain weights.
---@return integer?
function Ckpt:step() end

--- Size of all tensors.
---@return integer
function Ckpt:bytes() end

--- Bytes read from the files of a checkpoint since it was opened.
---@return integer
function Ckpt:bytes_read() end

--- The manifest without files and tensors, as JSON; nil for plain weights.
---@return string?
function Ckpt:manifest() end

--- Texts in the head of a plain file.
---@return table
function Ckpt:metadata() end

--- {n, zeros, nonfinite, min, max, mean, rms} of a tensor.
---@param name string
---@return table
function Ckpt:stats(name) end

--- Compare bit for bit: {n, differing, first, max_abs, distance}; distance is the norm of a - b.
---@param other mr.Ckpt
---@param name string
---@param name_there? string
---@return table
function Ckpt:compare(other, name, name_there) end

--- Write tensors {name, from} under new names to one file, piece by piece.
---@param path string
---@param tensors table[]
---@param metadata? table
function Ckpt:convert(path, tensors, metadata) end

--- Free its resources now; a second call does nothing. Also by <close>.
function Ckpt:close() end

--- Ranks that call collectives together.
---@class mr.Comm
local Comm = {}

--- This rank of the group, from 0.
---@return integer
function Comm:rank() end

--- Ranks of the group.
---@return integer
function Comm:size() end

--- The number of a rank of the group in the world.
---@param rank? integer
---@return integer
function Comm:world_rank(rank) end

---@class mr.Comm.split.options
---@field key? integer Order in the group; equal keys keep the order of ranks. Default: 0.
---@field lane? integer 0 or 1: two threads that use groups concurrently need different lanes. Default: 0.

--- The group of all ranks that pass the same color; no group for nil.
---@param color? integer
---@param options? mr.Comm.split.options
---@return mr.Comm?
function Comm:split(color, options) end

--- Wait until all ranks call this.
---@param deadline_s? number
function Comm:barrier(deadline_s) end

--- Add x of all ranks, in the order of ranks, in place; kind "max": the largest.
---@param x mr.Tensor
---@param kind? string
---@return mr.Tensor
function Comm:all_reduce(x, kind) end

---@class mr.Comm.reduce_scatter.options
---@field kind? string "sum" (default) or "max".
---@field dtype? string Dtype of the result: that of x (default); f32 and bf16 can be converted to each other.
---@field rows? integer[] Rows for each rank; default: the same for all.
---@field out? mr.Tensor Tensor for the result; it can be this rank's rows of x.

--- The sum over ranks, of which each rank gets its rows.
---@param x mr.Tensor
---@param options? mr.Comm.reduce_scatter.options
---@return mr.Tensor
function Comm:reduce_scatter(x, options) end

---@class mr.Comm.all_gather.options
---@field rows? integer[] Rows of each rank; default: as many as on this one.
---@field out? mr.Tensor Tensor for the result; x can be its rows of this rank.

--- The rows of all ranks, in the order of ranks.
---@param x mr.Tensor
---@param options? mr.Comm.all_gather.options
---@return mr.Tensor
function Comm:all_gather(x, options) end

---@class mr.Comm.all_to_all.options
---@field sends? integer[] Rows for each rank; default: the same for all.
---@field receives? integer[] Rows from each rank; default: as many as are sent to it.

--- Send rows to each rank, and receive rows from each rank.
---@param x mr.Tensor
---@param options? mr.Comm.all_to_all.options
---@return mr.Tensor
function Comm:all_to_all(x, options) end

--- Copy x of one rank, by default 0, to x of all ranks.
---@param x mr.Tensor
---@param root? integer
---@return mr.Tensor
function Comm:broadcast(x, root) end

--- Send x to a rank, which must receive it.
---@param x mr.Tensor
---@param to integer
function Comm:send(x, to) end

--- Receive into x, which has the dtype and size of the tensor that the rank sends.
---@param x mr.Tensor
---@param from integer
---@return mr.Tensor
function Comm:receive(x, from) end

--- Calls and sent bytes of this rank in its world: {all_reduce = {calls, bytes}}.
---@return table
function Comm:counts() end

--- Reset the counts to 0.
function Comm:reset_counts() end

--- Its group number, for the attribute `group` of ops between ranks; valid while the group lives.
---@return integer
function Comm:op_group() end

--- Reductions in two hops, first within nodes of `size` consecutive ranks.
---@param local_ranks integer
---@return mr.Torus
function Comm:torus(local_ranks) end

--- Free its resources now; a second call does nothing. Also by <close>.
function Comm:close() end

--- A device that runs programs.
---@class mr.Device
local Device = {}

--- {device, isa, threads, bf16, amx, bf16_by_f32, host_refused}.
---@return table
function Device:facts() end

--- From now on, compiling a graph is an error if no kernel of this GPU supports a step, which would run on the host.
function Device:refuse_host() end

--- The PCI address of a GPU.
---@return string|nil
function Device:bus() end

--- Free bytes and total bytes of its memory.
---@return integer
---@return integer
function Device:memory() end

--- Its rates in f32 or bf16, measured at the first call: per kind of step (linear, conv3d_dx, attention by lanes, ...; elementwise for all others) {operations, bytes} per second; step: fixed seconds per step.
---@param compute mr.Dtype
---@return table
function Device:rates(compute) end

--- The dtype to compute in: bf16 only if it is fast.
---@param wish mr.Dtype
---@return mr.Dtype
function Device:compute(wish) end

--- Free its resources now; a second call does nothing. Also by <close>.
function Device:close() end

--- A clip under construction; if it is closed before finish(), no file remains.
---@class mr.Encoder
local Encoder = {}

--- Write a frame [3][H][W].
---@param pixels string
---@param pts? integer
function Encoder:frame(pixels, pts) end

--- Write the frames still in the encoder, and give the file its name.
function Encoder:finish() end

--- Free its resources now; a second call does nothing. Also by <close>.
function Encoder:close() end

--- An executor. Its regions: w, frozen, and those that an optimizer declares.
---@class mr.Exec
local Exec = {}

--- Compile a finished graph for this executor.
---@param graph mr.Graph
---@return mr.Program
function Exec:compile(graph) end

--- Wait until all enqueued work is done.
function Exec:sync() end

--- Number of waits so far: {all, results, inputs} - for all enqueued work, for fetched results, for inputs in transfer.
---@return table
function Exec:waits() end

--- Pointer and bytes of a region; nothing if it is not in host memory.
---@param region string
---@return lightuserdata?
---@return integer?
function Exec:host(region) end

--- Whether conv3d supports `edge` on this device.
---@return boolean
function Exec:edges() end

--- Set all parameters to their initial values.
---@param seed integer
function Exec:init(seed) end

--- Compute weights from the masters.
function Exec:refresh() end

--- Whether the region exists.
---@param region string
---@return boolean
function Exec:has(region) end

--- All regions: name, dtype, role, prefix, start, stop, per, shared, transient, bytes.
---@return table[]
function Exec:regions() end

--- Read elements from offset on, without conversion.
---@param region string
---@param dtype mr.Dtype
---@param offset integer
---@param dims integer[]
---@return mr.Tensor
function Exec:read(region, dtype, offset, dims) end

--- A 64-bit hash of a range of a region; offset and count in elements.
---@param region string
---@param offset integer
---@param count integer
---@return integer
function Exec:hash(region, offset, count) end

--- Write elements from offset on: a dense tensor of the dtype of the region.
---@param region string
---@param offset integer
---@param values mr.Tensor
function Exec:write(region, offset, values) end

--- Read one parameter: its weight, master, gradient, ...; an error if the region does not have all of it.
---@param region string
---@param name string
---@return mr.Tensor
function Exec:param(region, name) end

--- Write one parameter; converted to the region's dtype.
---@param region string
---@param name string
---@param values mr.Tensor
function Exec:set_param(region, name, values) end

--- Free its resources now; a second call does nothing. Also by <close>.
function Exec:close() end

--- An output in transfer to the host.
---@class mr.Fetched
local Fetched = {}

--- Whether it has arrived.
---@return boolean
function Fetched:ready() end

--- A copy of the output; waits until it has arrived. An executor keeps the last 64.
---@return mr.Tensor
function Fetched:get() end

--- Free its resources now; a second call does nothing. Also by <close>.
function Fetched:close() end

--- The GPUs of this machine.
---@class mr.Gpus
local Gpus = {}

--- How many there are.
---@return integer
function Gpus:count() end

--- The version of the driver.
---@return string
function Gpus:driver() end

--- Read GPU i, from 0: {name, bus, memory_bytes, free_bytes, power_w, limit_w, clock_mhz, most_mhz, temperature_c, busy_percent, memory_errors, slow = {why}, processes = {{pid, bytes}}}; fields that its driver does not report are absent.
---@param i integer
---@return table
function Gpus:read(i) end

--- The one at a PCI address.
---@param bus string
---@return integer|nil
function Gpus:find(bus) end

--- Free its resources now; a second call does nothing. Also by <close>.
function Gpus:close() end

--- A graph under construction; finish it to compile it.
---@class mr.Graph
local Graph = {}

--- An input, which program:set() sets.
---@param name string
---@param dtype mr.Dtype
---@param dims integer[]
---@return mr.Value
function Graph:input(name, dtype, dims) end

--- A parameter of the table.
---@param name string
---@return mr.Value
function Graph:param(name) end

--- A parameter inside gathered weights, whose first element is `first` of all.
---@param gathered mr.Value
---@param first integer
---@param name string
---@return mr.Value
function Graph:window(gathered, first, name) end

--- A constant.
---@param values mr.Tensor
---@return mr.Value
function Graph:const(values) end

--- A range of a region of the executor, on the device or in pinned host memory.
---@param region string
---@param dtype mr.Dtype
---@param offset integer
---@param dims integer[]
---@param space? string
---@return mr.Value
function Graph:region(region, dtype, offset, dims, space) end

--- Name a value that program:get() reads.
---@param name string
---@param value mr.Value
---@return mr.Graph
function Graph:output(name, value) end

--- The nodes that f adds form a block; recompute: compute them again in the backward pass. Returns the results of f.
---@param name string
---@param recompute boolean
---@param f fun(): ...
---@return any ...
function Graph:block(name, recompute, f) end

--- The nodes that f adds run on that queue (compute, comm_intra, comm_inter, h2d, d2h), in parallel with other queues if data allows it. Returns the results of f.
---@param name string
---@param f fun(): ...
---@return any ...
function Graph:queue(name, f) end

--- Keep a value of a recomputed block.
---@param value mr.Value
---@return mr.Value
function Graph:save(value) end

--- A copy of a value in another memory: device, or pinned (host). It starts when `after`, a value of another queue, is computed.
---@param value mr.Value
---@param space string
---@param after? mr.Value
---@return mr.Value
function Graph:move(value, space, after) end

--- Copy a value to a range of a region in the other memory.
---@param value mr.Value
---@param region mr.Value
---@return mr.Value
function Graph:put(value, region) end

--- Keep a value for the backward pass in host memory.
---@param value mr.Value
---@return mr.Value
function Graph:offload(value) end

--- Add the backward pass of a scalar loss: gradients of the parameters, and those of wrt, which it returns; false: no gradient.
---@param loss mr.Value
---@param wrt? mr.Value[]
---@return (mr.Value|false)[]
function Graph:backward(loss, wrt) end

--- Gradients of a scalar with respect to wrt only, before backward; parameters get none.
---@param loss mr.Value
---@param wrt mr.Value[]
---@return (mr.Value|false)[]
function Graph:gradients(loss, wrt) end

--- The same value as a constant: no gradient passes through it.
---@param value mr.Value
---@return mr.Value
function Graph:detach(value) end

--- Repeat the collectives of `like`, for a rank that computes nothing meanwhile.
---@param like mr.Graph
---@return mr.Graph
function Graph:echo(like) end

--- Its collectives, in order.
---@return string
function Graph:op_log() end

--- Finish the graph: check it, remove dead nodes, choose in-place outputs.
---@return mr.Graph
function Graph:finish() end

--- The graph as text.
---@return string
function Graph:print() end

--- The steps of a run of the finished graph: queue, op, node, the steps waited for, and which steps they may overlap. exec: knows which regions share memory; absent: regions of different names do not.
---@param exec? mr.Exec
---@return string
function Graph:schedule(exec) end

--- Names of the inputs.
---@return table<string, mr.Value>
function Graph:inputs() end

--- Names of the outputs.
---@return string[]
function Graph:outputs() end

--- Whether its device supports `edge` of conv3d.
---@return boolean
function Graph:edges() end

--- Free its resources now; a second call does nothing. Also by <close>.
function Graph:close() end

--- A sealed index; #index is the number of its samples.
---@class mr.Index
---@operator len: integer
local Index = {}

--- Sample i, from 1: id, key, path, file, text, captions, start (its first frame in the file), frames, fps, width, height, columns, ...
---@param i integer
---@return table
function Index:row(i) end

--- The number, from 1, of the sample with a key; nil if no sample has it.
---@param key string
---@return integer?
function Index:find(key) end

--- Look up n rows in random order, for measurements.
---@param n integer
---@param seed? integer
function Index:visit(n, seed) end

--- Compare samples by key: {both, vanished (missing in other), new (only in other)}.
---@param other mr.Index
---@return table
function Index:common(other) end

--- {rows, fp_order, fp_set, path, roots, sources, columns, kinds: for each column "whole" or "real"}.
---@return table
function Index:facts() end

--- Free its resources now; a second call does nothing. Also by <close>.
function Index:close() end

--- A new index from rows of others.
---@class mr.IndexBuilder
local IndexBuilder = {}

--- Compress captions with the dictionary of an index; before the first row.
---@param index mr.Index
function IndexBuilder:like(index) end

--- Add a column of numbers, "real" or "whole"; before the first row. If both kinds are declared, it is real.
---@param name string
---@param kind? string
function IndexBuilder:column(name, kind) end

--- A text about the whole index.
---@param name string
---@param text string
function IndexBuilder:meta(name, text) end

--- Append row i, from 1, of an index. Changes: captions, a list of texts; columns, numbers by name; keys, the times of its key frames; part, {first frame, frames}.
---@param index mr.Index
---@param i integer
---@param changes? table
function IndexBuilder:copy(index, i, changes) end

---@class mr.IndexBuilder.add.options
---@field path? string Path of the file, which need not exist; required.
---@field text? string Its caption.
---@field frames? integer 1: a picture. Default: 1.
---@field height? integer As shown. Default: 1.
---@field width? integer As shown. Default: 1.
---@field fps? number Kept to a thousandth; 0: not known. Default: 0.

--- Append a row without reading its file, for orders that are only inspected.
---@param options mr.IndexBuilder.add.options
function IndexBuilder:add(options) end

--- Write fingerprints, seal and checksums, and give the file its name. If closed before, nothing remains.
function IndexBuilder:finish() end

--- Free its resources now; a second call does nothing. Also by <close>.
function IndexBuilder:close() end

--- An index under construction.
---@class mr.Ingest
local Ingest = {}

--- Work for some seconds: {listed, total, done, written, refused, without_caption, resumed, finished}.
---@param seconds? number
---@return table
function Ingest:step(seconds) end

--- Stop before the end. Returns the rows that are done and kept for an ingest with resume (0: none), and all rows of the input.
---@return integer
---@return integer
function Ingest:keep() end

--- A line per skipped item of a folder.
---@return string
function Ingest:notes() end

--- Free its resources now; a second call does nothing. Also by <close>.
function Ingest:close() end

--- A journal open for append.
---@class mr.Journal
local Journal = {}

--- Append a line.
---@param line string
function Journal:append(line) end

--- Make all lines so far durable.
function Journal:sync() end

--- Number of lines that wait for the disk, the reason, and the number of dropped lines.
---@return integer
---@return string?
---@return integer
function Journal:waiting() end

--- Free its resources now; a second call does nothing. Also by <close>.
function Journal:close() end

--- A journal open for reading.
---@class mr.JournalReader
local JournalReader = {}

--- The next whole line; nil at the end.
---@return string?
function JournalReader:next() end

--- Free its resources now; a second call does nothing. Also by <close>.
function JournalReader:close() end

--- Ranks that this process has started on this host.
---@class mr.Launch
local Launch = {}

--- Wait at most this long for an event; returns the number of running ranks. If one fails, the others are ended.
---@param ms? integer
---@return integer
function Launch:look(ms) end

--- End a rank that hangs, and the others, which get the reason.
---@param rank integer
---@param text string
function Launch:fail(rank, text) end

--- Forward a signal, 2 or 15; the second one ends the ranks.
---@param number integer
function Launch:signal(number) end

--- End all ranks, which get the reason.
---@param text string
function Launch:stop(text) end

--- The page of their published states.
---@return mr.Life
function Launch:page() end

--- The outcome: {exit, rank and text of the rank that failed first, asked: a signal}.
---@return table
function Launch:ended() end

--- Free its resources now; a second call does nothing. Also by <close>.
function Launch:close() end

--- What the ranks of a launch tell.
---@class mr.Life
local Life = {}

--- The launch: {ranks, first, world, uid, pid, start, fence, token, host, run, dir, job}.
---@return table
function Life:about() end

--- A rank now: {rank, pid, start, state, step, steps, phase, phase_s, beat_s, ops, clip, frames, open, last}; times as base.now_s tells them.
---@param rank integer
---@return table
function Life:rank(rank) end

--- Its last 2,048 operations with other ranks: {number, group, seq, kind, dtype, where, count, bytes, began_s, ended_s}.
---@param rank integer
---@return table[]
function Life:ops(rank) end

--- Seconds of a step without those that it waited for others.
---@param rank integer
---@param step integer
---@return number?
function Life:own_s(rank, step) end

--- What that share of a phase's durations stays below, and how many there were.
---@param phase string
---@param share number
---@return number
---@return integer
function Life:quantile(phase, share) end

--- Free its resources now; a second call does nothing. Also by <close>.
function Life:close() end

--- Decode threads on an index.
---@class mr.Loader
local Loader = {}

--- The next batch; nil after the last epoch. Fields: moonreel.data.loader.
---@return table?
function Loader:next() end

--- Release the memory of a batch.
---@param handle lightuserdata
function Loader:release(handle) end

--- The position of the order after the last batch given out.
---@return string
function Loader:state() end

--- The excluded samples at that state.
---@return string
function Loader:excluded() end

--- Samples that failed here since the last call, for the ranks that share the order.
---@return string
function Loader:failures() end

--- Pass the failures of all other ranks; needed at the end of an epoch.
---@param others string
function Loader:agree(others) end

--- Row ids, from 0, of the next n samples.
---@param n integer
---@return integer[]
function Loader:order(n) end

--- Facts of its first epoch: samples, batches, dropped by rule, buckets; and counters.
---@return table
function Loader:facts() end

--- Free its resources now; a second call does nothing. Also by <close>.
function Loader:close() end

--- The micro-batches of an index in order, epoch after epoch.
---@class mr.Order
local Order = {}

--- The next micro-batch: {source (from 1), epoch, number (from 0, in its epoch), last (of it), bucket = {resolution, frames, height, width, batch}, rows (from 1), keys}.
---@return table
function Order:next() end

--- Skip the next n micro-batches. Returns how many did not exist before the end.
---@param n integer
---@return integer
function Order:skip(n) end

--- Whether every source has been drawn `epochs` times.
---@return boolean
function Order:over() end

--- An upper limit of the number of micro-batches; math.maxinteger: unknown.
---@return integer
function Order:most() end

--- Continue with this epoch of every source.
---@param epoch integer
function Order:begin(epoch) end

--- The number of micro-batches in the current epoch of each source, or in the one that has just ended.
---@return integer
function Order:batches() end

--- Free its resources now; a second call does nothing. Also by <close>.
function Order:close() end

--- A table of parameters: names, shapes, initial values.
---@class mr.Params
local Params = {}

---@class mr.Params.add.options
---@field name? string Name, required.
---@field shape? integer[] Dimensions, required.
---@field init? table Initial values, required: {kind =, scale =, values =}.
---@field cut? table This rank has a share of each part of an axis: {ranks =, at =, axis = (from 0), parts = length of each}; absent: the whole parameter.
---@field frozen? boolean No gradient and no update. Default: false.
---@field buffer? boolean Recomputed from the recipe, not stored in checkpoints. Default: false.
---@field decay? number Factor of the weight decay. Default: 1.
---@field lr_factor? number Factor of the learning rate. Default: 1.
---@field lookup? boolean An embedding table. Default: false.
---@field outside? boolean Loaded from a separate file, not stored in checkpoints. Default: false.
---@field model? integer Index of the model, if several are updated separately. Default: 0.

--- Declare a parameter. Returns its index, from 0.
---@param options mr.Params.add.options
---@return integer
function Params:add(options) end

---@class mr.Params.seal.options
---@field ranks? integer Ranks that own equal chunks of each bucket. Default: 1.
---@field elements? integer Most bytes of a bucket; 0: one bucket. Default: 0.
---@field granule? integer Chunks are multiples of this number of bytes, in compute dtype; 0: 64 KiB. Default: 0.
---@field block? integer Elements per block of the matrices; chunks split no block; 0: no matrices. Default: 0.
---@field matrices? string[] Names of parameters that are updated block by block; they follow the others in memory.

--- Seal the table: fix the places of parameters in memory; options split them into buckets for ranks.
---@param options? mr.Params.seal.options
---@return mr.Params
function Params:seal(options) end

---@class mr.Params.share.options
---@field hops? table[] One or two hops, first within hosts: {queue, group, ranks, at}.
---@field gradients? boolean Gradients are reduced in every backward pass. Default: false.
---@field weights? boolean Weights are gathered for every pass. Default: false.

--- Declare what ranks share of a sealed table, for all graphs that are built from now on.
---@param options mr.Params.share.options
---@return mr.Params
function Params:share(options) end

--- Buckets {start, stop, chunk} of the trainable range; each rank owns a chunk of each.
---@return table[]
function Params:buckets() end

--- Rows {name, shape, cut, frozen, buffer, lookup, outside, model, block, offset, count, decay, lr_factor}: shape: of all ranks; count: elements of this rank.
---@return table[]
function Params:list() end

--- Length of the trainable or frozen range, including gaps.
---@param frozen? boolean
---@return integer
function Params:elements(frozen) end

--- The element of the trainable range from which on parameters are split between ranks.
---@return integer
function Params:split() end

--- The element of the trainable range at which the matrices begin.
---@return integer
function Params:matrices() end

--- The number of parameters.
---@return integer
function Params:count() end

--- Initial values, f32.
---@param name string
---@param seed integer
---@return mr.Tensor
function Params:initial(name, seed) end

--- Free its resources now; a second call does nothing. Also by <close>.
function Params:close() end

--- A generator of numpy.
---@class mr.Pcg64
local Pcg64 = {}

--- The next number in [0, 1), of 53 bits.
---@return number
function Pcg64:random() end

--- Free its resources now; a second call does nothing. Also by <close>.
function Pcg64:close() end

--- The vocabulary of a tokenizer.
---@class mr.Pieces
---@operator len: integer
local Pieces = {}

--- Ids of the pieces of a text, without end and truncation.
---@param text string
---@return integer[]
function Pieces:encode(text) end

--- The text of ids.
---@param ids integer[]
---@return string
function Pieces:decode(ids) end

--- The normalized text, which is split into pieces.
---@param text string
---@return string
function Pieces:normal(text) end

--- Text, kind (normal, unknown, control, user, unused, byte) and score of a piece; nil: no such piece.
---@param id integer
---@return string?
---@return string?
---@return number?
function Pieces:piece(id) end

--- The id of a piece by its text; nil: no such piece.
---@param text string
---@return integer?
function Pieces:find(text) end

--- The id of the unknown piece.
---@return integer
function Pieces:unknown() end

--- The path of the model file.
---@return string
function Pieces:path() end

--- Free its resources now; a second call does nothing. Also by <close>.
function Pieces:close() end

--- A graph compiled for an executor.
---@class mr.Program
local Program = {}

--- Set an input: the tensor is copied at once, and the value is kept until it is set again. Does not wait for runs.
---@param name string
---@param values mr.Tensor
function Program:set(name, values) end

--- Pass elements of an output of the last run to an input of another program on the device, without waiting. Elements must be passed in order, from element 0 of the input on.
---@param output string
---@param first integer
---@param count integer
---@param to mr.Program
---@param input string
---@param at integer
function Program:pass(output, first, count, to, input, at) end

--- Skip elements of an input between those that are passed. Their values are undefined, and the graph must not use them in a result.
---@param input string
---@param at integer
---@param count integer
function Program:skip(input, at, count) end

--- Run it once.
function Program:run() end

--- A copy of an output of the last run.
---@param name string
---@return mr.Tensor
function Program:get(name) end

--- Fetch an output of at most 512 bytes in its current state. It is copied in parallel with later runs, which do not wait for it.
---@param name string
---@return mr.Fetched
function Program:fetch(name) end

--- Bytes: {arena, bound, pinned, workspace, params, state, offloaded, inputs, landing, staged, ring, results, consts, library, host, staging}.
---@return table
function Program:memory() end

--- {flop, bytes} of one run.
---@return table
function Program:cost() end

--- Measure each op in later runs; false: stop.
---@param on? boolean
function Program:time(on) end

--- A row per step: {op, node, shapes (of the inputs), block, origin, backward, again (recomputed), naive, flop, bytes, seconds (of the last timed run), expected (by the rates that are known), queue, after (rows of other queues that it waits for)}.
---@return table[]
function Program:times() end

--- A row per kind of step, i.e. of steps that differ in times() only by node, block, origin, seconds, queue and after; with their count.
---@return table[]
function Program:kinds() end

--- Write the last timed run as a trace for browsers, with a row per queue; with side queues or transfers, also as if each step started as soon as possible.
---@param path string
function Program:trace(path) end

--- The predicted cost of a run: {seconds, flop, bytes, memory, total}.
---@return table
function Program:plan() end

--- The steps: queue, op, node, the steps for which each waits, and the steps that it can overlap; then the transfers of inputs and results during the previous and the next run.
---@return string
function Program:schedule() end

--- Storages at the peak of memory, largest first: {bytes, purpose (kept, gradient, workspace, forward or region), op, node, block, origin}.
---@return table[]
function Program:live() end

--- Memory profile: the largest number of live arena bytes in each of n equal parts of a run.
---@param parts integer
---@return integer[]
function Program:profile(parts) end

--- What is in memory at the peak, and what to do.
---@return string
function Program:report() end

--- Bytes of the arena that a run has touched.
---@return integer
function Program:measured() end

--- Free its resources now; a second call does nothing. Also by <close>.
function Program:close() end

--- The lock of a run directory.
---@class mr.RunLock
local RunLock = {}

--- The id of the run.
---@return string
function RunLock:id() end

--- The fencing number of this lock.
---@return integer
function RunLock:fence() end

--- The run directory.
---@return string
function RunLock:dir() end

--- Raise MR_E_LOCK if another process has taken it.
function RunLock:check() end

--- Free its resources now; a second call does nothing. Also by <close>.
function RunLock:close() end

--- Takes snapshots of a run and commits them in a separate thread.
---@class mr.Saver
local Saver = {}

--- Take a snapshot; the thread commits it. False: it was skipped or, with buffer_bytes, not committed; poll() tells why.
---@param step integer
---@param tensors table[]
---@param meta string
---@param wait? boolean
---@return boolean
function Saver:save(step, tensors, meta, wait) end

--- Allocate 1 or 2 buffers now (default 2), so that no save does.
---@param tensors table[]
---@param buffers? integer
function Saver:prepare(tensors, buffers) end

--- Wait until no save is pending; raises if the newest save has no commit.
---@param timeout_s? number
function Saver:wait(timeout_s) end

--- Raise if saves keep failing, or if another process has taken over the run.
function Saver:check() end

--- Ranks are lost: wait at most this long for the parts of the others.
---@param seconds number
function Saver:part(seconds) end

--- {commits, failures, failures_in_row, pending, last_commit}.
---@return table
function Saver:status() end

--- The next event not yet returned: {kind, step, bytes, copy_s, write_s, text}.
---@return table?
function Saver:poll() end

--- Free its resources now; a second call does nothing. Also by <close>.
function Saver:close() end

--- Values under keys, sealed.
---@class mr.Store
---@operator len: integer
local Store = {}

--- A named text.
---@param name string
---@return string?
function Store:text(name) end

--- The bytes of a value; nil if no value has the key.
---@param key string
---@return string?
function Store:get(key) end

--- Copy a value into a dense tensor, up to the smaller size. Returns the bytes of the value; nil: no such value.
---@param key string
---@param into mr.Tensor
---@return integer?
function Store:read(key, into) end

--- The first key >= this one; nil if all keys are smaller.
---@param key string
---@return string?
function Store:seek(key) end

--- A fingerprint of the values, independent of the order in which they were put.
---@return string
function Store:fingerprint() end

--- Free its resources now; a second call does nothing. Also by <close>.
function Store:close() end

--- A store open for writing.
---@class mr.StoreWriter
---@operator len: integer
local StoreWriter = {}

--- A text of the last commit.
---@param name string
---@return string?
function StoreWriter:text(name) end

--- Whether the key has a value.
---@param key string
---@return boolean
function StoreWriter:has(key) end

--- Add a value: bytes, or those of a dense tensor. It waits for the next commit.
---@param key string
---@param value string|mr.Tensor
function StoreWriter:put(key, value) end

--- Bytes that wait for the next commit.
---@return integer
function StoreWriter:waiting() end

--- Write all waiting values and a text to the disk, atomically.
---@param name string
---@param text string
function StoreWriter:commit(name, text) end

--- Commit, seal, and give the file its name; close the store then.
function StoreWriter:finish() end

--- Free its resources now; a second call does nothing. Also by <close>.
function StoreWriter:close() end

--- One end of a pipe, without blocking.
---@class mr.Stream
local Stream = {}

--- Available data, possibly empty; nil: end of the stream.
---@return string?
function Stream:read() end

--- Write a text; the rest is written by wait. False: the reader is gone.
---@param text string
---@return boolean
function Stream:write(text) end

--- Free its resources now; a second call does nothing. Also by <close>.
function Stream:close() end

--- A subset of the samples of an index.
---@class mr.Subset
local Subset = {}

--- The number of samples.
---@return integer
function Subset:count() end

--- Whether row, from 1, is one of the samples.
---@param row integer
---@return boolean
function Subset:has(row) end

--- Free its resources now; a second call does nothing. Also by <close>.
function Subset:close() end

--- Threads that check the files of rows.
---@class mr.Sweep
local Sweep = {}

--- The result of the next row: {row, class, why, changes, keys}; nil after the time or the last row. class: the fault, nil: none; keys: for class "keys", the valid key frames.
---@param seconds? number
---@return table?
function Sweep:next(seconds) end

--- Free its resources now; a second call does nothing. Also by <close>.
function Sweep:close() end

--- A tensor in host memory. t[0] and t["0, :, 3:16"] are views; positions count from 0. Arithmetic is element-wise, with the broadcasting of numpy.
---@class mr.Tensor
---@field shape integer[] Dimensions, outermost first.
---@field dtype mr.Dtype Dtype of the elements.
---@field [integer|string] any A view t[0], t["0, :, 3:16"], a field or a method.
---@operator len: integer
---@operator add(number|mr.Tensor): mr.Tensor
---@operator sub(number|mr.Tensor): mr.Tensor
---@operator mul(number|mr.Tensor): mr.Tensor
---@operator div(number|mr.Tensor): mr.Tensor
---@operator unm: mr.Tensor
local Tensor = {}

--- A dense copy in another dtype.
---@param dtype mr.Dtype
---@return mr.Tensor
function Tensor:to(dtype) end

--- A dense copy.
---@return mr.Tensor
function Tensor:clone() end

--- The same elements with other dimensions, one of which can be -1; a view if the strides allow it, else a copy.
---@param dims integer[]
---@return mr.Tensor
function Tensor:reshape(dims) end

--- A view of positions start to stop - 1 of an axis.
---@param axis integer
---@param start integer
---@param stop integer
---@return mr.Tensor
function Tensor:slice(axis, start, stop) end

--- A view with the axes in another order.
---@param axes integer[]
---@return mr.Tensor
function Tensor:permute(axes) end

--- A view with two axes swapped, by default the last two.
---@param a? integer
---@param b? integer
---@return mr.Tensor
function Tensor:transpose(a, b) end

--- A view that repeats dimensions of length 1.
---@param dims integer[]
---@return mr.Tensor
function Tensor:expand(dims) end

--- Sum of all values, or over some axes.
---@param axes? integer|integer[]
---@param keep? boolean
---@return number|mr.Tensor
function Tensor:sum(axes, keep) end

--- Mean of all values, or over some axes.
---@param axes? integer|integer[]
---@param keep? boolean
---@return number|mr.Tensor
function Tensor:mean(axes, keep) end

--- Largest value of all, or over some axes.
---@param axes? integer|integer[]
---@param keep? boolean
---@return number|mr.Tensor
function Tensor:max(axes, keep) end

--- Smallest value of all, or over some axes.
---@param axes? integer|integer[]
---@param keep? boolean
---@return number|mr.Tensor
function Tensor:min(axes, keep) end

--- Root of the sum of squares of all values, or over some axes.
---@param axes? integer|integer[]
---@param keep? boolean
---@return number|mr.Tensor
function Tensor:norm(axes, keep) end

--- The value of a tensor with one element.
---@return number
function Tensor:item() end

--- All values as a flat list.
---@return any[]
function Tensor:totable() end

--- All values as raw bytes.
---@return string
function Tensor:bytes() end

--- Address and bytes of a dense tensor; valid while it lives.
---@return lightuserdata
---@return integer
function Tensor:ptr() end

--- Copy another tensor of this shape into it; returns itself.
---@param values mr.Tensor
---@return mr.Tensor
function Tensor:copy_from(values) end

--- Fill a dense f32 tensor with standard normal numbers; returns itself.
---@param seed integer
---@param purpose string
---@param key? integer
---@param epoch? integer
---@return mr.Tensor
function Tensor:fill_normal(seed, purpose, key, epoch) end

--- Fill a dense f32 tensor of at least 16 values as torch.randn does on a CPU, after n draws of this size; returns itself.
---@param seed integer
---@param draws? integer
---@return mr.Tensor
function Tensor:fill_torch_normal(seed, draws) end

--- Free its resources now; a second call does nothing. Also by <close>.
function Tensor:close() end

--- Collectives in two hops.
---@class mr.Torus
local Torus = {}

--- Index of the chunk that this rank owns, from 0.
---@return integer
function Torus:chunk() end

---@class mr.Torus.reduce_scatter.options
---@field kind? string "sum" (default) or "max".
---@field dtype? string Dtype of the result: that of x (default); f32 and bf16 can be converted to each other.

--- The sum over ranks, of which each rank gets the rows of its chunk.
---@param x mr.Tensor
---@param options? mr.Torus.reduce_scatter.options
---@return mr.Tensor
function Torus:reduce_scatter(x, options) end

--- The chunks of all ranks.
---@param x mr.Tensor
---@return mr.Tensor
function Torus:all_gather(x) end

--- Free its resources now; a second call does nothing. Also by <close>.
function Torus:close() end

--- A Mersenne twister.
---@class mr.Twister
local Twister = {}

--- The next 32 bits.
---@return integer
function Twister:word() end

--- Free its resources now; a second call does nothing. Also by <close>.
function Twister:close() end

--- A value of a graph. Arithmetic with numbers, values and tensors adds nodes, with the broadcasting of numpy.
---@class mr.Value
---@field shape integer[] Dimensions, outermost first.
---@field dtype mr.Dtype Dtype of the elements.
---@field [integer|string] any shape, dtype, or a method.
---@operator add(number|mr.Value): mr.Value
---@operator sub(number|mr.Value): mr.Value
---@operator mul(number|mr.Value): mr.Value
---@operator div(number|mr.Value): mr.Value
---@operator unm: mr.Value
local Value = {}

--- The same elements with other dimensions; one can be -1.
---@param dims integer[]
---@return mr.Value
function Value:reshape(dims) end

--- Repeat dimensions of length 1.
---@param dims integer[]
---@return mr.Value
function Value:expand(dims) end

--- Positions start to stop - 1 of an axis.
---@param axis integer
---@param start integer
---@param stop integer
---@return mr.Value
function Value:slice(axis, start, stop) end

--- Axes in another order.
---@param axes integer[]
---@return mr.Value
function Value:permute(axes) end

--- Two axes swapped, by default the last two.
---@param a? integer
---@param b? integer
---@return mr.Value
function Value:transpose(a, b) end

--- n equal slices of an axis.
---@param axis integer
---@param n integer
---@return mr.Value ...
function Value:split(axis, n) end
