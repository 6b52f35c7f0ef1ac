-- The same rendering with weights that were published on a hub.
return recipe.extend("../sample") { model = { force_huggingface = true } }
