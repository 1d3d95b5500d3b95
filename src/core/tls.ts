/** What a caller of servers needs where they speak TLS, each as PEM text; what is not used is absent. */
export interface TlsCredentials {
  /** Certificates of who signs those of servers; those that Node trusts when absent. */
  readonly ca?: string;
  /** The certificate that the caller shows to servers that ask for one, with those in between behind it. */
  readonly cert?: string;
  /** Its key. */
  readonly key?: string;
}

/** A function is asked at each new connection, so that certificates can be renewed while it runs. */
export type TlsSource = TlsCredentials | (() => TlsCredentials);

export const currentTls = (source: TlsSource): TlsCredentials => (typeof source === 'function' ? source() : source);
