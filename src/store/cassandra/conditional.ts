/**
 * Conditional statements and what their answers mean. A batch covers one partition of one table; all of it is applied or
 * nothing is.
 */
import { StoreUnavailableError, UNKNOWN } from '../store.ts';
import type { Cluster, Row, Statement } from './client.ts';
import { storeError, verdictOf } from './errors.ts';

export type Answer =
  | { readonly kind: 'applied' }
  /** The rows that were looked at, without those that don't exist; of each the key and the columns of conditions. */
  | { readonly kind: 'refused'; readonly rows: readonly Row[] }
  | { readonly kind: 'unknown' };

/** The column by which an answer says whether it was applied. */
const APPLIED_COLUMN = '[applied]';

/**
 * Carries out conditional statements, once.
 * @throws StoreUnavailableError nothing was written, and nothing will be
 */
export async function conditionally(cluster: Cluster, statements: readonly Statement[]): Promise<Answer> {
  try {
    const rows = await cluster.conditional(statements);
    if (rows[0]?.[APPLIED_COLUMN] === true) return { kind: 'applied' };
    // Where nothing that was looked at exists, the one row holds the verdict and no more.
    return { kind: 'refused', rows: rows.filter((row) => Object.keys(row).length > 1) };
  } catch (error) {
    if (error instanceof StoreUnavailableError) throw error;
    if (verdictOf(error) === 'unknown') return UNKNOWN;
    throw storeError(error, cluster.name);
  }
}

/** Answers without a definite outcome after which `decided` gives up. */
const DOUBTS = 20;

/**
 * Repeats one conditional statement until it is decided. One that carries a token as its column `name` counts as applied
 * where that token stands there.
 * @throws StoreUnavailableError also where no definite answer comes
 */
export async function decided(cluster: Cluster, statement: Statement, token?: string): Promise<boolean> {
  for (let doubts = 0; doubts < DOUBTS; doubts++) {
    const answer = await conditionally(cluster, [statement]);
    if (answer.kind === 'applied') return true;
    if (answer.kind === 'refused') return token !== undefined && answer.rows[0]?.name === token;
  }
  throw new StoreUnavailableError(`${cluster.name}: no definite answer to a conditional write`);
}
