-- 256px on 8 ranks.
return recipe.extend("./256px", "./plugins/tp") {}
