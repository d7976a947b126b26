/* At each start mysqld measures how long a tick of times(2) is, 110 ms on a processor, and no code reads the result. That
   is a quarter of what a start costs, and the tests start a thousand servers. This library, in LD_PRELOAD, has ticks that
   come at once. */
struct tms;
static long ticks;
long times(struct tms *unused)
{
	(void)unused;
	return ticks += 100;
}
