--- moonreel ckpt prune: remove all but the newest checkpoints of a run.
-- @module moonreel.cli.ckpt.prune
local base = require "moonreel.core.base"
local json = require "moonreel.core.json"
local size = require("moonreel.text.listing").size

return function(opts, spec)
  if not opts.keep then
    base.raise("MR_E_USAGE", "ckpt prune: needs --keep N; try: moonreel ckpt prune RUN --keep 3")
  end
  local ckpt = require "moonreel.ckpt"
  local run = ckpt.resolve(spec, opts.outputs).run
  if not run then
    base.raise("MR_E_USAGE", ("ckpt prune: %s is not a run; try: the folder of a run, as "
      .. "moonreel runs lists them"):format(spec))
  end
  local removed, kept, bytes = json.array(), json.array(), 0
  -- no other process may write to the run meanwhile
  local _ <close> = require("moonreel.core.run").lock(run)
  for i, step in ipairs(ckpt.steps(run)) do
    local stays = i <= opts.keep or (opts.every and step % opts.every == 0)
    local dir = ckpt.dir(run, step)
    if stays and i == 1 then
      -- a damaged newest checkpoint raises here, before any older one is removed
      local newest <close> = ckpt.open(dir)
      newest:verify()
    elseif not stays then
      local ok, old = pcall(ckpt.open, dir)
      if ok then
        bytes = bytes + old.bytes
        old:close()
      end
      if not opts.dry_run then
        local trash = dir:gsub("/step%-(%d+)$", "/.trash-step-%1")
        base.rename(dir, trash)
        base.remove_dir(trash)
      end
    end
    table.insert(stays and kept or removed, step)
  end
  if opts.json then
    print(json.encode({ run = run, kept = kept, removed = removed, bytes = bytes,
      dry_run = opts.dry_run or false }, { indent = 2 }))
  else
    print(("%s: %d checkpoints stay, %d %s, %s"):format(run, #kept, #removed,
      opts.dry_run and "would go" or "removed", size(bytes)))
  end
  return 0
end
