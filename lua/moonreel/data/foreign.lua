--- Inputs of other programs that ingest does not read: refuses each by its kind, with the commands
-- that convert it into what ingest reads.
-- @module moonreel.data.foreign
local base = require "moonreel.core.base"

local foreign = {}

local CAPTIONS <const> = "moonreel data ingest clips -o NAME.mrx; NAME.txt or NAME.json next to a "
  .. "clip is its caption"
local UNPACK <const> = "mkdir clips && %s -C clips && " .. CAPTIONS

-- by extension: the kind of file, what to try; %s: the file
local ENDINGS <const> = {
  { "tar", "a tar shard (WebDataset, img2dataset, video2dataset)", UNPACK:format "tar xf %s" },
  { "tar.gz", "a tar shard", UNPACK:format "tar xzf %s" },
  { "tgz", "a tar shard", UNPACK:format "tar xzf %s" },
  { "zip", "an archive", "unzip %s -d clips && moonreel data ingest clips -o NAME.mrx" },
  { "gz", "compressed", "gunzip -k %s, and the result" },
  { "zst", "compressed", "zstd -d %s, and the result" },
  { "xz", "compressed", "xz -dk %s, and the result" },
  { "bz2", "compressed", "bunzip2 -k %s, and the result" },
  { "arrow", "an Arrow table (datasets of Hugging Face)", "python3 -c 'import datasets; "
    .. "datasets.Dataset.from_file(\"%s\").to_csv(\"list.csv\")', and list.csv" },
  { "feather", "an Arrow table", "python3 -c 'import pandas; pandas.read_feather(\"%s\")"
    .. ".to_csv(\"list.csv\")', and list.csv" },
  { "lance", "a Lance table", "python3 -c 'import lance; lance.dataset(\"%s\").to_table()"
    .. ".to_pandas().to_csv(\"list.csv\")', and list.csv" },
  { "xlsx", "a spreadsheet", "save it as CSV, with columns path and text" },
  { "yaml", "YAML", "write a CSV with columns path and text, or the same as JSON" },
  { "yml", "YAML", "write a CSV with columns path and text, or the same as JSON" },
}
for _, name in ipairs { "h5", "hdf5", "npz", "npy", "pkl", "pickle", "pt", "mdb", "db",
    "sqlite" } do
  ENDINGS[#ENDINGS + 1] = { name, "data of another program", "write out the clips, and a CSV with "
    .. "columns path and text" }
end

-- by scheme of an address: the command that downloads it
local SCHEMES <const> = { s3 = "aws s3 sync %s clips", gs = "gsutil -m rsync -r %s clips",
  az = "azcopy copy %s clips --recursive", hf = "huggingface-cli download --repo-type dataset NAME "
    .. "--local-dir clips", http = "curl -LO %s", https = "curl -LO %s", ftp = "curl -LO %s" }

local function refuse(input, what, try)
  base.raise("MR_E_DATA", ("%s: is %s, which ingest does not read; try: %s"):format(input, what,
    (try:gsub("%%s", (input:gsub("%%", "%%%%"))))))
end

-- folders by their contents: the extension, the kind, what to try
local FOLDERS <const> = {
  { "arrow", "a dataset of Hugging Face", "python3 -c 'import datasets; "
    .. "datasets.load_from_disk(\"%s\").to_csv(\"list.csv\")', and list.csv" },
  { "tar", "a folder of tar shards (WebDataset, img2dataset, video2dataset)", "mkdir clips && for "
    .. "f in %s/*.tar; do tar xf $f -C clips; done && " .. CAPTIONS },
  { "parquet", "a folder of Parquet files", "moonreel data ingest FILE.parquet for each, and "
    .. "moonreel data merge" },
}

--- Refuses a folder without clips, by what it contains instead.
---@param input string  input of data.ingest
---@param problem any   the reason for the refusal
function foreign.explain(input, problem)
  if not tostring(problem):find("no samples in it", 1, true) then
    return
  end
  local found = {}
  for _, name in ipairs(base.list_dir(input)) do
    found[name:match "%.(%w+)$" or ""] = true
  end
  for _, row in ipairs(FOLDERS) do
    if found[row[1]] then
      refuse(input, row[2], row[3])
    end
  end
end

--- Refuses input that other programs wrote and ingest does not read: MR_E_DATA.
---@param input string  input of data.ingest
function foreign.check(input)
  local scheme = input:match "^(%a[%w+.-]*)://"
  if scheme then
    refuse(input, "an address, but clips are read only from local files",
      (SCHEMES[scheme:lower()] or "fetch it") .. ", then moonreel data ingest clips -o NAME.mrx")
  end
  for _, row in ipairs(ENDINGS) do
    local ending, what, try = table.unpack(row)
    local is_file = base.exists(input) and not base.exists(input .. "/.")
    if is_file and input:lower():sub(-#ending - 1) == "." .. ending then
      refuse(input, what, try)
    end
  end
end

return foreign
