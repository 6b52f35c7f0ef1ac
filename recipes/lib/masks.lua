--- Shares of the mask strategies of Open-Sora 1.2, by the five numbers in which its recipes differ.
return function(random, part, image_random, image_head, image_tail)
  return {
    random = random,
    intepolate = part,
    quarter_random = part, quarter_head = part, quarter_tail = part, quarter_head_tail = part,
    image_random = image_random,
    image_head = image_head,
    image_tail = image_tail, image_head_tail = image_tail,
  }
end
