/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What a program says to the machine model of the lab, tools/lab/machine.c, by
 * instructions that do nothing, so that the program runs anywhere.
 */
#ifndef WORKLOADS_MODEL_H
#define WORKLOADS_MODEL_H

#if defined(__x86_64__)
#define MODEL_SAY(command) \
	MODEL_SAY_OF(command, 0)
#define MODEL_SAY_OF(command, value) \
	({ __asm__ volatile(".byte 0x0f, 0x1f, 0x84, 0x00, " #command ", 0x5a, 0x05, 0xc0" \
			    :: "a" ((unsigned long)(value)) : "memory"); })
#else
#define MODEL_SAY(command) ((void)(command))
#define MODEL_SAY_OF(command, value) ((void)(command), (void)(value))
#endif

/* From now on memory accesses take time (on), or take none (off). */
#define model_off()	MODEL_SAY(0)
#define model_on()	MODEL_SAY(1)
/* What happens between these is counted. */
#define model_begin()	MODEL_SAY(2)
#define model_end()	MODEL_SAY(3)
/* What this thread does is counted for cluster @nr, 0 to 63, from now on. */
#define model_cluster(nr)	MODEL_SAY_OF(4, nr)

#endif /* WORKLOADS_MODEL_H */
