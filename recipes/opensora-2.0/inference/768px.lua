-- 129 frames at 768px on 8 ranks.
return recipe.extend("./256px", "./plugins/sp") { sampling = { resolution = "768px" } }
