/* layout */ typedef int mr_room_layout;
