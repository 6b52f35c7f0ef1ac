--- How a file of it is known.
return { kinds = { { name = "a toy that carries", facts = { { "channels", "proj.weight", 1 } },
  is = function(has) return has["proj.weight"] and has["back.weight"] end } } }
