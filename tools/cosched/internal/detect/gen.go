package detect

// The object is committed, so that building needs no clang. TestObjectIsCurrent fails if
// its sources are newer.
//
//go:generate go tool bpf2go -cc clang-14 -strip llvm-strip-14 -target amd64 -no-global-types -type use_key -type use -type wake_key -type wake -cflags "-O2 -g -Wall -Werror -I/usr/include/x86_64-linux-gnu" object bpf/detect.bpf.c
//go:generate sh -c "cat bpf/detect.bpf.c bpf/kernel.h | sha256sum > bpf/sources.sha256"
