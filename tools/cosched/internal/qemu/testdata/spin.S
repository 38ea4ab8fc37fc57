/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A firmware of 64 KiB in which all CPUs spin: the least that keeps each vCPU of a QEMU
 * busy. It is at 0xf0000 and below 4 GiB.
 */
	.code16
	.globl _start
_start:
	/* The other CPUs begin here: the vector of their SIPI is 0xf0. */
1:	jmp 1b
	.org 0x10
	/* The first one reaches its local APIC by a segment of 4 GiB. */
	cli
	lgdtl %cs:(gdtr - _start)
	mov %cr0, %eax
	or $1, %al
	mov %eax, %cr0
	mov $8, %ax
	mov %ax, %ds
	/* INIT and SIPI to all but itself, now and then: one may be plugged in later. */
1:	addr32 movl $0xc4500, 0xfee00300
	addr32 movl $0xc46f0, 0xfee00300
	mov $0x1000000, %ecx
2:	dec %ecx
	jnz 2b
	jmp 1b
gdtr:	.word 15
	.long gdt - _start + 0xf0000
gdt:	.quad 0, 0x00cf92000000ffff
	/* Reset. */
	.org 0xfff0
	ljmp $0xf000, $0x10
	.org 0x10000
