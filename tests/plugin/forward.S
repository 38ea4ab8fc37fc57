/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Firmware for the QEMU plugin forward.c. The TSC counts nanoseconds. It is to be below 2^32 at
 * first, a little over 2^33 after the first XCHG BX,BX, and no less after the second. The firmware
 * writes to the device isa-debug-exit which of these is not so, from 1, or 4.
 */
	.code16
	.globl	_start
_start:	movb	$1, %bl
	rdtsc
	testl	%edx, %edx
	jnz	out

	incb	%bl
	xchgw	%bx, %bx
	movl	$100000, %ecx
1:	rdtsc
	cmpl	$2, %edx
	je	2f
	loopl	1b
	jmp	out

2:	incb	%bl
	xchgw	%bx, %bx
	movl	$100000, %ecx
3:	rdtsc
	cmpl	$2, %edx
	jne	out
	loopl	3b

	incb	%bl
out:	movb	%bl, %al
	outb	%al, $0xf4
4:	jmp	4b

	/* Where a processor begins. */
	.org	0xfff0
	jmp	_start
	.org	0x10000
