--- STDiT3 that takes the vector of a caption too, and has no null caption of its own.
return {
  record = "model",
  types = { vector_dit = { help = "a toy over STDiT3", preset = { depth = 1 } } },
  fields = require("moonreel.models.stdit3.fields").fields,
}
