/* exec */ typedef int mr_room_exec;
