--- Tables of published data sets: which of their columns hold a clip's file and its captions. Other
-- columns of numbers, as scores, become columns of the index under their names. Values are what
-- `moonreel data ingest --columns` takes.
return {
  -- video, caption, aesthetic score, motion score, temporal consistency score, camera motion,
  -- frame, fps, seconds
  ["openvid-1m"] = "path=video,text=caption",
  -- clip_id, ..., timestamp, file_path, short_caption, dense_caption, background_caption, ...; the
  -- times are those of the clip in the video it was cut from
  ["miradata-330k"] = "path=file_path,text=dense_caption,text_2=short_caption,-=timestamp",
  -- path, text, num_frames, height, width, aspect_ratio, fps, resolution: the references' own
  ["pexels-45k"] = "path=path,text=text",
}
