--- moonreel data verify: compare every block of an index with its checksum.
-- @module moonreel.cli.data.verify
return {
  words = "NAME.mrx",
  summary = "compare every block of an index with its checksum",
  run = function(opts, _, path)
    local index <close> = require("moonreel.data").open(path, { verify = true })
    local facts = index.meta
    if opts.json then
      print(require("moonreel.core.json").encode({ index = path, rows = facts.rows,
        fp_order = facts.fp_order, fp_set = facts.fp_set }))
    else
      print(("%s: whole, %d samples, fp_order %s"):format(path, facts.rows, facts.fp_order))
    end
    return 0
  end,
}
