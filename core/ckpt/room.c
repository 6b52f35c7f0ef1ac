/* ckpt */ typedef int mr_room_ckpt;
