--- The output of a function, by print and io.write, as one text, then its results. Failures are
-- passed on.
return function(f, ...)
  local out, real_print, real_write = {}, print, io.write
  _G.print = function(...)
    local parts = table.pack(...)
    for i = 1, parts.n do
      parts[i] = tostring(parts[i])
    end
    out[#out + 1] = table.concat(parts, "\t")
  end
  rawset(io, "write", function(...) out[#out + 1] = table.concat { ... } end)
  local results = table.pack(pcall(f, ...))
  _G.print = real_print
  rawset(io, "write", real_write)
  if not results[1] then
    error(results[2], 0)
  end
  return table.concat(out, "\n"), table.unpack(results, 2, results.n)
end
