import cassandra from 'cassandra-driver';
import { describe, expect, it } from 'vitest';
import { storeError, verdictOf } from '../../src/store/cassandra/errors.ts';
import { StoreDamagedError, StoreUnavailableError } from '../../src/store/store.ts';

const { errors, types } = cassandra;
const { responseErrorCodes: codes, consistencies } = types;

const response = (code: number, message = '', details: object = {}): Error =>
  Object.assign(new errors.ResponseError(code, message), details);

/** What each says about a conditional write: the wrong word for one of these loses messages, or sends some twice. */
describe('what an error says about a write', () => {
  it.each<[string, Error, string]>([
    ['no node up', new errors.NoHostAvailableError({}), 'unavailable'],
    ['all connections busy', new errors.BusyConnectionError('a', 1, 1), 'unavailable'],
    ['a node whose connections are gone', new Error('No connection available'), 'unavailable'],
    ['a wrong password', new errors.AuthenticationError('no'), 'unavailable'],
    ['silence', new errors.OperationTimedOutError('late'), 'unknown'],
    ['a connection lost on the way', Object.assign(new Error('reset'), { isSocketError: true }), 'unknown'],
    [
      'a connection lost before it was written',
      Object.assign(new Error('closed'), { isSocketError: true, requestNotWritten: true }),
      'unavailable',
    ],
    ['a write time-out', response(codes.writeTimeout, 'CAS', { writeType: 'CAS' }), 'unknown'],
    ['a write failure', response(codes.writeFailure), 'unknown'],
    ['a read time-out within Paxos', response(codes.readTimeout), 'unknown'],
    ['a read failure within Paxos', response(codes.readFailure), 'unknown'],
    ['an unknown write (protocol 5)', response(0x1700), 'unknown'],
    ['an error of the server', response(codes.serverError), 'unknown'],
    [
      'too few replicas to begin',
      response(codes.unavailableException, '', { consistencies: consistencies.serial }),
      'unavailable',
    ],
    [
      'too few in the datacenter',
      response(codes.unavailableException, '', { consistencies: consistencies.localSerial }),
      'unavailable',
    ],
    ['too few to commit', response(codes.unavailableException, '', { consistencies: consistencies.quorum }), 'unknown'],
    ['overload at the door', response(codes.overloaded, 'Request breached limit'), 'unavailable'],
    ['overload by hints', response(codes.overloaded, 'Too many in flight hints: 9'), 'unknown'],
    ['a node that is starting', response(codes.isBootstrapping), 'unavailable'],
    ['a user who may not', response(codes.unauthorized), 'unavailable'],
    ['a wrong statement', response(codes.syntaxError), 'refused'],
    ['an invalid statement', response(codes.invalid), 'refused'],
    ['a fault of the program', new TypeError('x'), 'refused'],
  ])('%s', (_, error, verdict) => {
    expect(verdictOf(error)).toBe(verdict);
  });

  it("is said in the port's words, with the first node's reason", () => {
    const error = storeError(
      new errors.NoHostAvailableError({ '10.0.0.1:9042': new Error('refused') }),
      'cassandra://a/q',
    );
    expect(error).toBeInstanceOf(StoreUnavailableError);
    expect((error as Error).message).toBe('cassandra://a/q: no node answered (10.0.0.1:9042: refused)');
  });

  it('tells tables that are gone from faults of the program', () => {
    expect(storeError(response(codes.invalid, 'unconfigured table task'), 's')).toBeInstanceOf(StoreDamagedError);
    const fault = response(codes.syntaxError, 'line 1');
    expect(storeError(fault, 's')).toBe(fault);
  });
});
