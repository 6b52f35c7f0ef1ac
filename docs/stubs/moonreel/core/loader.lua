---@meta moonreel.core.loader
-- Made from the rows of the bindings: moonreel help stubs DIR

--- Batches of decoded clips; use moonreel.data.loader.
---@class moonreel.core.loader
local loader = {}

---@class moonreel.core.loader.new.options
---@field buckets? table The bucket rule, required.
---@field frame_interval? integer Step from one frame to the next. Default: 1.
---@field compat? boolean Lengths and frames as in Open-Sora 1.2. Default: false.
---@field draw_epochs? integer Epochs after which draws of samples repeat; 0: never. Default: 0.
---@field reference? string Use the buckets and the order of "opensora-1.2" or "opensora-2.0".
---@field fps_max? number For 2.0: thin faster clips to this frame rate; 0: do not. Default: 0.
---@field seed? integer Seed of the order. Default: 0.
---@field threads? integer Decode threads; 0: one per processor. Default: 0.
---@field prefetch? integer Batches decoded ahead; 0: 2. Default: 0.
---@field epochs? integer The number of epochs; 0: no end. Default: 0.
---@field state? string Continue from this loader:state().
---@field excluded? string Excluded samples of that state: loader:excluded().
---@field quarantine? string The run's quarantine.jsonl.
---@field slot? integer Number of micro-batches of equal cost that are drawn together. Default: 1.
---@field carry? boolean Samples that do not fill a micro-batch at the end of an epoch come first in the next one. Default: false.
---@field deadline_s? number Seconds for one clip; 0: 60. Default: 0.
---@field isolated? boolean Each thread decodes in a separate process. Default: false.
---@field allow_empty? boolean Drop lengths that no sample can enter, instead of an error. Default: false.
---@field part? integer Index of this rank among those that share the order. Default: 0.
---@field parts? integer Number of ranks that share the order. Default: 1.
---@field group? integer Draws are assigned in groups of this size; 0: parts. Default: 0.
---@field lpt? boolean Assign draws of a group by falling cost to the rank with the least load. Default: false.
---@field blind? boolean Nothing is decoded. Default: false.
---@field sample_part? integer Decode only the samples of this part, from 1. Default: 0.
---@field sample_parts? integer Number of parts; 0: all samples. Default: 0.
---@field node? integer NUMA node for slabs, from 1; 0: any. Default: 0.
---@field local_ranks? integer Ranks that share the memory of this host. Default: 1.

--- Start decode threads on sources, each {index, name, weights = {{samples, weight}, ...}, epochs, seen, epoch}.
---@param sources table[]
---@param options moonreel.core.loader.new.options
---@return mr.Loader
function loader.new(sources, options) end

---@class moonreel.core.loader.rule.options
---@field buckets? table The bucket rule, required.
---@field frame_interval? integer Step from one frame to the next. Default: 1.
---@field compat? boolean Lengths and frames as in Open-Sora 1.2. Default: false.
---@field draw_epochs? integer Epochs after which draws of samples repeat; 0: never. Default: 0.
---@field reference? string Use the buckets and the order of "opensora-1.2" or "opensora-2.0".
---@field fps_max? number For 2.0: thin faster clips to this frame rate; 0: do not. Default: 0.

--- Create a bucket rule; moonreel.data.buckets.rule takes the tables of a recipe.
---@param options moonreel.core.loader.rule.options
---@return mr.BucketRule
function loader.rule(options) end

--- Whether the sample with this low half of a key belongs to a part, from 1.
---@param key integer
---@param part integer
---@param parts integer
---@return boolean
function loader.in_part(key, part, parts) end

---@class moonreel.core.loader.carry.options
---@field state? string Of the old loader, required.
---@field excluded? string Excluded samples of that state: loader:excluded().
---@field seen? string The list that belongs to that state, if any.
---@field folder? string Where the new list is written, required.
---@field seed? integer Seed of the order. Default: 0.
---@field was_members? mr.Subset Samples of the old order; default: all.
---@field members? mr.Subset Samples of the new order; default: all.

--- Convert a state to another index or rule. Returns the state, the path of the list of samples that the epoch has trained, and their number.
---@param was mr.Index
---@param was_rule mr.BucketRule
---@param now mr.Index
---@param rule mr.BucketRule
---@param options moonreel.core.loader.carry.options
---@return string
---@return string
---@return integer
function loader.carry(was, was_rule, now, rule, options) end

---@class moonreel.core.loader.quantiles.options
---@field column? string A column of the index, required.
---@field from? number Lower quantile, among samples with a value. Default: 0.
---@field to? number Upper quantile. Default: 1.
---@field trim_top? number Share of the largest values that is removed first. Default: 0.

--- The samples between two quantiles of a column, and their smallest and largest value.
---@param index mr.Index
---@param options moonreel.core.loader.quantiles.options
---@return mr.Subset
---@return number
---@return number
function loader.quantiles(index, options) end

---@class moonreel.core.loader.hold.options
---@field hold_back? number A share below 1, or a count; above 0, required. Default: 0.
---@field held? boolean Return the held back samples instead of the others. Default: false.
---@field of? mr.Subset Choose among these samples; default: all.

--- The samples that training never takes, by the hashes of their keys, or all others.
---@param index mr.Index
---@param options moonreel.core.loader.hold.options
---@return mr.Subset
function loader.hold(index, options) end

---@class moonreel.core.loader.order.options
---@field buckets? table The bucket rule, required.
---@field frame_interval? integer Step from one frame to the next. Default: 1.
---@field compat? boolean Lengths and frames as in Open-Sora 1.2. Default: false.
---@field draw_epochs? integer Epochs after which draws of samples repeat; 0: never. Default: 0.
---@field reference? string Use the buckets and the order of "opensora-1.2" or "opensora-2.0".
---@field fps_max? number For 2.0: thin faster clips to this frame rate; 0: do not. Default: 0.
---@field seed? integer Seed of the order. Default: 0.
---@field slot? integer Number of micro-batches of equal cost that are drawn together. Default: 1.
---@field carry? boolean Samples that do not fill a micro-batch at the end of an epoch come first in the next one. Default: false.
---@field epochs? integer Number of epochs; the last one carries no samples. Default: 0.
---@field fill? boolean The order of a reference, but batches at the end are filled with samples from the front. Default: false.
---@field unshuffled? boolean The order of a reference without shuffling. Default: false.
---@field quarantine? string A quarantine.jsonl that excludes samples from later epochs.

--- The order of samples without decoding, from the first epoch on; moonreel.data.order takes settings.
---@param sources table[]
---@param options moonreel.core.loader.order.options
---@return mr.Order
function loader.order(sources, options) end

return loader
