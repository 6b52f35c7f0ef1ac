-- Stage 1 with frames given: at the head, the tail, or both.
return recipe.extend("./stage1", "./i2v") { lr = 1e-5 }
