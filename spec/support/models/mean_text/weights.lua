--- How a file of it is known.
return { kinds = { { name = "a toy of bytes", facts = { { "width", "bytes.weight", 2 } },
  is = function(has) return has["bytes.weight"] end } } }
