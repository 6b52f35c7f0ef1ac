-- 256px from a first frame that an image model makes.
return recipe.extend("./256px", "./plugins/t2i2v") {}
