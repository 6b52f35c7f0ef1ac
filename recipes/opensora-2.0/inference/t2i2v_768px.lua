-- The same at 768px on 8 ranks.
return recipe.extend("./768px", "./plugins/t2i2v") {}
