import type { Client, ExecutionOptions, Host, HostMap } from 'cassandra-driver';
import { describe, expect, it } from 'vitest';
import { RingOrderPolicy } from '../../src/store/cassandra/routing.ts';

const host = (address: string, datacenter = 'dc1'): Host => ({ address, datacenter }) as unknown as Host;
const HOSTS = ['c', 'a', 'e', 'b', 'd'].map((address) => host(address, address === 'e' ? 'dc2' : 'dc1'));
const named = (address: string): Host => HOSTS.find((one) => one.address === address)!;
/** As the ring has them for the partition of this test. */
const REPLICAS = ['d', 'e', 'b'].map(named);

async function policyOf(dc: string | null, consistency: 'local' | 'global', hosts = HOSTS) {
  const clock = { ms: 0 };
  const policy = new RingOrderPolicy(dc, consistency, () => clock.ms);
  const client = { getReplicas: (keyspace: string) => (keyspace === 'q' ? REPLICAS : null) };
  await new Promise<void>((resolve, reject) => {
    const map = { values: () => Object.freeze([...hosts]) } as unknown as HostMap;
    policy.init(client as unknown as Client, map, (error) => (error ? reject(error) : resolve()));
  });
  const order = (keyspace = 'q') => policy.plan(keyspace, Buffer.from('key')).map(({ address }) => address);
  return { policy, order, clock };
}

describe('the order in which nodes are asked', () => {
  it('begins with the replicas as the ring has them, every time', async () => {
    const { order, policy } = await policyOf('dc1', 'local');
    for (let i = 0; i < 20; i++) expect(order()).toEqual(['d', 'b', 'a', 'c']);
    let first: string | undefined;
    const options = { getKeyspace: () => 'q', getRoutingKey: () => Buffer.from('key') } as unknown as ExecutionOptions;
    policy.newQueryPlan('other', options, (_, hosts) => {
      first = hosts.next().value?.address;
    });
    expect(first).toBe('d');
  });

  it('counts replicas of all datacenters where quorums do', async () => {
    const { order, policy } = await policyOf('dc1', 'global');
    expect(order()).toEqual(['d', 'e', 'b', 'a', 'c']);
    expect(policy.getDistance(named('e'))).not.toBe(policy.getDistance(named('a')));
  });

  it('is the same where there is no partition, or the ring is not known', async () => {
    const { order, policy } = await policyOf('dc1', 'local');
    expect(order('unknown')).toEqual(['a', 'b', 'c', 'd']);
    expect(policy.plan('q', null).map(({ address }) => address)).toEqual(['a', 'b', 'c', 'd']);
  });

  it('puts nodes last that gave no answer, for a while', async () => {
    const { order, policy, clock } = await policyOf('dc1', 'local');
    policy.suspect('d');
    expect(order()).toEqual(['b', 'a', 'c', 'd']);
    clock.ms = 9_999;
    expect(order()).toEqual(['b', 'a', 'c', 'd']);
    clock.ms = 10_000;
    expect(order()).toEqual(['d', 'b', 'a', 'c']);
  });

  it('takes the only datacenter there is, and refuses to guess', async () => {
    const { policy } = await policyOf(null, 'local', [host('a'), host('b')]);
    expect(policy.dc).toBe('dc1');
    await expect(policyOf(null, 'local')).rejects.toThrow(/dc=dc1 or dc2/);
    await expect(policyOf('dc3', 'local')).rejects.toThrow(/"dc3" is not one of the datacenters/);
  });
});
